package config

import "sync"

// firstVersion is the first release; every setting without a version of its own
// is as old.
const firstVersion = "0.1.0"

// settingDoc is what the reference says of a setting that its decoder does not.
type settingDoc struct {
	kind     string // the type, where the setting has a decoder of its own
	standard string // the default, as it would be written, or ""
	example  string // a value, as it is written in HCL
	doc      string
}

// Types that have decoders of their own.
const (
	typeDuration = "duration" // a string such as "30s" or "1h30m"
	typeCommand  = "list of strings"
	typeAny      = "object"
)

var blockDocs = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"":                 "Settings of the whole agent. Environment variables and flags take precedence over files.",
		"consul":           "How the Consul agent of this host is reached.",
		"dns":              "Consul's DNS, which `jorc wait` and `requires` ask.",
		"http":             "The status API of this host: `/v1/status`, `/healthz`, `/metrics`, and a page at `/`.",
		"log_store":        "Where complete logs of tasks are kept. One of `dir` and a block `s3`.",
		"s3":               "A bucket of an S3-compatible store for logs of tasks.",
		"member":           "This host as a member of its cluster. With this block the agent joins at its start, and the block decides over roles and zone.",
		"orchestrator":     "Makes this agent a candidate for the election of the cluster's orchestrator.",
		"sink":             "A receiver of events besides the journal in Consul. The label is `log`, `file` or `webhook`.",
		"stage":            "New content reaches the hosts one after the other, and stops at the first whose checks do not pass ([stages](../stages.md)). The label is the stage's name, the same on all hosts. It holds for all templates of a `together`.",
		"requires":         "A service that has to be there first: at the top it delays static configuration, in a template or task only that one. The label is `[TAG.]SERVICE[@DC][=N]`.",
		"service":          "A service that this host registers.",
		"check":            "A health check of the service: one of `script`, `http`, `tcp`, `udp`, `grpc`, `h2ping`, `ttl` and `alias_service`.",
		"weights":          "The weights in Consul's DNS SRV answers.",
		"static":           "Consistent configuration: applied once per version, and it must pass.",
		"template":         "A file that follows Consul's catalog and KV: exactly one of `source` and `contents`, and a `destination`.",
		"template_options": "Limits and rights of all templates.",
		"trigger":          "Runs a workflow once per change of what it names, or at set times: one of `service`, `key`, `prefix`, `event` and `schedule`.",
		"ui":               "Shows the clusters that this host orchestrates to browsers and programs of a team. Off without this block; it needs an `orchestrator` block.",
		"tls":              "Certificates of the `ui` listener. It is required for addresses that other hosts can reach.",
		"vault":            "The server of the functions `secret`, `secrets` and `pkiCert`; without an address they fail.",
		"process":          "A program that starts when its templates are rendered, and follows them; see [processes](../processes.md).",
		"env":              "The environment of a process: inherited variables, then those of `prefix`, `secret` and `custom`; later ones win.",
		"prefix":           "A prefix of Consul's KV: each key below it becomes a variable. The label is the prefix, also as `PREFIX@DC`.",
		"secret":           "A secret of Vault: each of its keys becomes a variable. The label is its path.",
		"workflow":         "A named list of tasks, which run in order.",
		"task":             "One step of a workflow: exactly one of `command` and `script`.",
	}
})

var settingDocs = sync.OnceValue(func() map[string]settingDoc {
	return map[string]settingDoc{
		"cluster":      {standard: `"default"`, example: `"prod"`, doc: "The cluster of this host. Empty: keys have no segment for it."},
		"log_json":     {standard: `false`, example: `true`, doc: "Write logs as JSON, one object per line."},
		"log_level":    {standard: `"info"`, example: `"debug"`, doc: "`trace`, `debug`, `info`, `warn`, `error` or `off`."},
		"node":         {standard: "the name of the Consul agent's node", example: `"web-1"`, doc: "The name of this host in the catalog and the cluster."},
		"on_stop":      {standard: `"keep"`, example: `"deregister"`, doc: "What happens to services when the agent stops: `keep`, `deregister` or `maintenance`."},
		"prefix":       {standard: `"jorc"`, example: `"sites/jorc"`, doc: "The prefix of all keys in Consul's KV. Empty: keys begin with the cluster."},
		"state_dir":    {standard: `"/var/lib/jorc"`, example: `"/srv/jorc"`, doc: "The directory of the agent's state, jobs and logs."},
		"version_file": {standard: "`version` in `state_dir`", example: `"/etc/current_version"`, doc: "The file that holds the version that runs on this host."},

		"consul.address":         {standard: `"127.0.0.1:8500"`, example: `"https://127.0.0.1:8501"`, doc: "`host:port`, `http://`, `https://` or `unix://`."},
		"consul.auth_file":       {example: `"/etc/jorc/consul.auth"`, doc: "A file that holds `USER:PASSWORD`, for HTTP basic authentication of a proxy before Consul. A change of it is used at once."},
		"consul.ca_file":         {example: `"/etc/consul.d/ca.pem"`, doc: "The certificate of the authority that signed Consul's certificate."},
		"consul.ca_path":         {example: `"/etc/ssl/consul.d"`, doc: "A directory of such certificates."},
		"consul.client_cert":     {example: `"/etc/jorc/client.pem"`, doc: "The certificate that jorc shows to Consul; needs `client_key`."},
		"consul.client_key":      {example: `"/etc/jorc/client.key"`, doc: "The key of `client_cert`."},
		"consul.datacenter":      {standard: "the agent's", example: `"dc2"`, doc: "The datacenter of catalog and KV."},
		"consul.max_connections": {standard: `64`, example: `32`, doc: "Connections to Consul at the same time, at least 8."},
		"consul.namespace":       {example: `"ops"`, doc: "The namespace (Consul Enterprise)."},
		"consul.partition":       {example: `"edge"`, doc: "The admin partition (Consul Enterprise)."},
		"consul.tls_server_name": {example: `"server.dc1.consul"`, doc: "The name that Consul's certificate must have."},
		"consul.token":           {kind: "refused", doc: "A token must not stand in the configuration: use `token_file` or `CONSUL_HTTP_TOKEN`."},
		"consul.token_file":      {example: `"/etc/jorc/token"`, doc: "A file that holds the ACL token. A new token in it is used at once."},

		"dns.addr":    {kind: "string", doc: "The older name of `address`."},
		"dns.address": {standard: `"127.0.0.1:8600"`, example: `"system"`, doc: "`host:port`; `system` means the resolvers of `/etc/resolv.conf`."},

		"http.addr":    {kind: "string", doc: "The older name of `address`."},
		"http.address": {standard: `"127.0.0.1:8520"`, example: `"127.0.0.1:8521"`, doc: "`host:port` to listen on. Empty: no status API."},

		"log_store.dir":       {example: `"/srv/jorc-logs"`, doc: "A directory, usually on shared storage."},
		"ui.address":          {example: `"127.0.0.1:8530"`, doc: "`host:port` to listen on. Viewers log in with their own Consul token, or bring certificates (`tls`)."},
		"tls.cert_file":       {example: `"/etc/jorc/ui.pem"`, doc: "The certificate of the listener, in PEM. It is read again when it was replaced."},
		"tls.key_file":        {example: `"/etc/jorc/ui.key"`, doc: "The key of `cert_file`."},
		"tls.client_ca_file":  {example: `"/etc/jorc/viewers.pem"`, doc: "The authority that signed the certificates of viewers: who has one sees everything but params. Without it viewers log in with a Consul token."},
		"s3.bucket":           {example: `"jorc-logs"`, doc: "The name of the bucket."},
		"s3.credentials_file": {standard: "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`", example: `"/etc/jorc/s3"`, doc: "A file in the format of AWS' `credentials`."},
		"s3.endpoint":         {example: `"s3.example:9000"`, doc: "`host` or `host:port` of the store."},
		"s3.insecure":         {standard: `false`, example: `true`, doc: "Use HTTP instead of HTTPS."},
		"s3.prefix":           {example: `"prod/"`, doc: "The beginning of the names of all objects."},
		"s3.region":           {example: `"eu-central-1"`, doc: "The region that requests are signed for."},

		"member.leave_on_stop": {standard: `false`, example: `true`, doc: "Leave the cluster when the agent stops."},
		"member.meta":          {kind: typeAny, example: `{ rack = "7" }`, doc: "Meta of the member. Filters see it; it changes nothing."},
		"member.on_lead":       {example: `"take-over"`, doc: "The workflow to run when this member becomes a leader."},
		"member.on_step_down":  {example: `"hand-over"`, doc: "The workflow to run when this member stops leading."},
		"member.params":        {kind: typeAny, example: `{ disks = 4 }`, doc: "Params of the member. They take precedence over the profile's."},
		"member.provides":      {example: `["mysql"]`, doc: "Services that this host provides though its agent does not register them, for the graph of dependencies."},
		"member.roles":         {example: `["db"]`, doc: "Roles of the member. Rollouts, runs and holds select by role."},
		"member.zone":          {example: `"rack-7"`, doc: "The zone. A rollout by zones finishes one zone before the next."},

		"orchestrator.clusters":    {standard: "the agent's own", example: `["prod"]`, doc: "The clusters to orchestrate."},
		"orchestrator.enabled":     {standard: `true`, example: `false`, doc: "`false` keeps the block without its effect."},
		"orchestrator.interval":    {kind: typeDuration, standard: `"10s"`, example: `"30s"`, doc: "The longest time between two cycles. Changes begin a cycle at once."},
		"orchestrator.stage_gates": {standard: "none", example: `["slo"]`, doc: "The workflows that may be the `gate` of a stage. Hosts name the gate, and it runs on a manager, so no other workflow is run."},
		"sink.path":                {example: `"/var/log/jorc-events.jsonl"`, doc: "The file, for `sink \"file\"`."},
		"sink.secret":              {kind: "refused", doc: "A secret must not stand in the configuration: use `secret_file`."},
		"sink.secret_file":         {example: `"/etc/jorc/webhook.key"`, doc: "A file with the key that signs the requests, for `sink \"webhook\"`."},
		"sink.url":                 {example: `"https://hooks.example/jorc"`, doc: "Where events are posted, for `sink \"webhook\"`."},

		"requires.count": {standard: `1`, example: `2`, doc: "The least number of instances."},
		"requires.for":   {standard: `"functional"`, example: `"reachable"`, doc: "`functional` (answers in Consul's DNS), `addressable` (registered) or `reachable` (functional, and accepts a TCP connection)."},

		"service.address":             {standard: "the node's", example: `"10.0.0.5"`, doc: "The address of this instance."},
		"service.enable_tag_override": {standard: `false`, example: `true`, doc: "Other programs may change the tags in the catalog."},
		"service.id":                  {standard: "the name", example: `"web-1"`, doc: "The id of this instance; needed when a host has several of one name."},
		"service.meta":                {example: `{ version = "2" }`, doc: "Meta of this instance."},
		"service.on_stop":             {standard: "`on_stop` at the top", example: `"maintenance"`, doc: "`keep`, `deregister` or `maintenance` for this service."},
		"service.port":                {example: `8080`, doc: "The port of this instance."},
		"service.tagged_addresses":    {kind: "object of strings", example: `{ eth0 = "10.0.0.5", wan = "example.com:8080" }`, doc: "More addresses by name, `host` or `host:port`."},
		"service.tags":                {example: `["http"]`, doc: "Tags of this instance."},
		"weights.passing":             {standard: `1`, example: `10`, doc: "The weight while the instance is passing."},
		"weights.warning":             {standard: `1`, example: `2`, doc: "The weight while it is in warning."},

		"check.alias_service": {example: `"db"`, doc: "The id of a service whose health this check repeats."},
		"check.body":          {example: `"{}"`, doc: "The body of the request of an `http` check."},
		"check.deregister_critical_service_after": {kind: typeDuration, example: `"1h"`, doc: "Consul removes the service when the check has been critical for this long."},
		"check.failures_before_critical":          {standard: `0`, example: `3`, doc: "Consecutive failures before the check is critical."},
		"check.failures_before_warning":           {standard: `0`, example: `1`, doc: "Consecutive failures before the check is in warning."},
		"check.grpc":                              {example: `"127.0.0.1:9000/app.Service"`, doc: "A server of gRPC's health protocol, with the service after the slash."},
		"check.grpc_use_tls":                      {standard: `false`, example: `true`, doc: "Use TLS for `grpc`."},
		"check.h2ping":                            {example: `"127.0.0.1:9443"`, doc: "An HTTP/2 server to ping."},
		"check.header":                            {kind: "object of lists of strings", example: `{ Accept = ["text/plain"] }`, doc: "Headers of the request of an `http` check."},
		"check.http":                              {example: `"http://127.0.0.1:8080/health"`, doc: "A URL: 2xx passing, 429 warning, all others critical."},
		"check.id":                                {standard: "`service:ID`, with `:N` when there are several", example: `"web-http"`, doc: "The id of the check in the catalog."},
		"check.interval":                          {kind: typeDuration, example: `"10s"`, doc: "How often the check runs; required where jorc or Consul runs it."},
		"check.method":                            {standard: `"GET"`, example: `"HEAD"`, doc: "The method of an `http` check."},
		"check.name":                              {example: `"answers"`, doc: "The name that people see."},
		"check.notes":                             {example: `"asks the front page"`, doc: "A remark for people."},
		"check.script":                            {kind: typeCommand, example: `["/usr/lib/checks/web.sh"]`, doc: "A program that the agent runs: exit 0 passing, 1 warning, all others critical."},
		"check.status":                            {standard: `"critical"`, example: `"passing"`, doc: "The state before the first run."},
		"check.success_before_passing":            {standard: `0`, example: `2`, doc: "Consecutive successes before the check is passing."},
		"check.tcp":                               {example: `"127.0.0.1:8080"`, doc: "An address to connect to."},
		"check.timeout":                           {kind: typeDuration, standard: "30s for `script`, 10s for the others", example: `"5s"`, doc: "The longest time of one run of the check."},
		"check.tls_server_name":                   {example: `"api.example"`, doc: "The name that the server's certificate must have."},
		"check.tls_skip_verify":                   {standard: `false`, example: `true`, doc: "Accept any certificate."},
		"check.ttl":                               {kind: typeDuration, example: `"15s"`, doc: "The program itself reports its state to Consul at least this often."},
		"check.udp":                               {example: `"127.0.0.1:53"`, doc: "An address to send a packet to."},

		"static.paths":               {example: `["/etc/nginx/nginx.conf", "/etc/mysql/**"]`, doc: "Files that belong to static configuration: no template may write them. `**` means any number of directories."},
		"static.validation":          {example: `"validate"`, doc: "The workflow that checks the result, after `workflow` and then at `validation_interval`."},
		"static.validation_interval": {kind: typeDuration, standard: `"5m"`, example: `"15m"`, doc: "How often the validation runs."},
		"static.workflow":            {example: `"converge"`, doc: "The workflow that brings this host to the desired version."},

		"process.command":          {kind: typeCommand, example: `["/srv/app/server", "--config", "/srv/app/app.conf"]`, doc: "The program and its arguments; it must stay in the foreground."},
		"process.dir":              {standard: "the agent's", example: `"/srv/app"`, doc: "Its working directory."},
		"process.kill_signal":      {standard: `"SIGTERM"`, example: `"SIGINT"`, doc: "The signal that asks it to end."},
		"process.kill_timeout":     {kind: typeDuration, standard: `"30s"`, example: `"1m"`, doc: "The time between `kill_signal` and SIGKILL."},
		"process.max_parallel":     {standard: "the slot's present limit", example: `2`, doc: "How many hosts may hold `slot` at the same time; 0 lifts the limit."},
		"process.min_healthy_time": {kind: typeDuration, standard: `"10s"`, example: `"1m"`, doc: "How long it must run to count as started. Then its slot is released, and pauses between restarts begin again."},
		"process.reload_signal":    {standard: "changed files restart it", example: `"SIGHUP"`, doc: "The signal that it gets when one of its files changed."},
		"process.slot":             {example: `"app"`, doc: "A slot of the cluster to hold during a restart or reload."},
		"process.splay":            {kind: typeDuration, standard: `"0"`, example: `"10s"`, doc: "A random pause of at most this before a restart or reload."},
		"process.templates":        {standard: "all", example: `["app.conf"]`, doc: "The templates that it waits for and follows; `[]`: none."},
		"process.user":             {standard: "the agent's", example: `"app"`, doc: "The user that it runs as."},
		"process.wait":             {kind: `string "min:max"`, example: `"50ms:2s"`, doc: "As in templates, for the variables from KV and Vault."},

		"env.allowlist": {standard: "all", example: `["PATH", "APP_*"]`, doc: "Names or globs of the variables that the process inherits."},
		"env.custom":    {example: `["MODE=production"]`, doc: "Variables `NAME=value`."},
		"env.denylist":  {example: `["VAULT_*"]`, doc: "Names or globs of variables that it does not inherit."},
		"env.pristine":  {standard: `false`, example: `true`, doc: "Inherit no variable."},
		"env.sanitize":  {standard: `false`, example: `true`, doc: "In names from KV and Vault, `_` replaces what is not a letter, a digit or `_`."},
		"env.upcase":    {standard: `false`, example: `true`, doc: "Names from KV and Vault are in upper case."},

		"prefix.format": {standard: `"{{ key }}"`, example: `"app_{{ key }}"`, doc: "The names of the variables."},
		"secret.format": {standard: `"{{ key }}"`, example: `"db_{{ key }}"`, doc: "The names of the variables."},

		"stage.approve_each":  {standard: `false`, example: `true`, doc: "Each step but the last waits for `jorc stage approve`."},
		"stage.bake":          {kind: typeDuration, standard: "none", example: `"10m"`, doc: "The hosts of a step must stay healthy for this long before the next step begins."},
		"stage.canary":        {standard: `0`, example: `1`, doc: "So many hosts come first, on their own; the others follow when the checks of these have passed."},
		"stage.gate":          {standard: "none", example: `"slo"`, doc: "After each step this workflow runs on a manager: exit code 0 passes, `jorc_not_yet` asks again, others stop the stage."},
		"stage.gate_interval": {kind: typeDuration, standard: `"1m"`, example: `"30s"`, doc: "The time between two samples."},
		"stage.gate_samples":  {standard: `1`, example: `3`, doc: "How many times in a row the gate must pass."},
		"stage.gate_timeout":  {kind: typeDuration, standard: `"1h"`, example: `"10m"`, doc: "The stage stops if the gate did not answer for this long."},
		"stage.max_parallel":  {kind: "number or string", standard: `1`, example: `"10%"`, doc: "How many hosts at a time may be at work on a change or out of service: a number, or a share, which is rounded down, but to 1 at least."},
		"stage.min_healthy":   {kind: typeDuration, standard: `"10s"`, example: `"1m"`, doc: "How long the checks of the host must pass after the reload. Choose more than the interval of the checks."},
		"stage.node_deadline": {kind: typeDuration, standard: "`min_healthy` and 30s", example: `"2m"`, doc: "If the checks have not passed for `min_healthy` by then, the change counts as failed."},
		"stage.on_unhealthy":  {standard: `"restore"`, example: `"stop"`, doc: "What happens on a host whose checks do not pass: with `restore` its old files return and are reloaded, with `stop` the new ones stay for inspection. Either way no other host takes the change."},
		"stage.services":      {standard: "all checks", example: `["web"]`, doc: "Only the checks of these services' instances on this host, and of the host itself, have to pass. Each must have an instance here."},
		"stage.zone_by_zone":  {standard: `false`, example: `true`, doc: "One zone is finished before the next begins."},

		"template.allow_empty":          {standard: `false`, example: `true`, doc: "Switches `empty_after` off."},
		"template.backup":               {standard: `false`, example: `true`, doc: "Keep the previous file beside it, with `.bak` after its name."},
		"template.check":                {kind: typeCommand, example: `["nginx", "-t", "-c", "{{.Staged}}"]`, doc: "Checks the new file before it replaces the old one. `{{.Staged}}` is its path, `{{.Destination}}` the destination."},
		"template.check_timeout":        {kind: typeDuration, standard: `"30s"`, example: `"1m"`, doc: "The longest time of `check`."},
		"template.contents":             {example: `"{{ key \"motd\" }}"`, doc: "The template itself, instead of `source`."},
		"template.create_dirs":          {standard: `false`, example: `true`, doc: "Create missing directories above the destination, with mode 0755."},
		"template.destination":          {example: `"/etc/nginx/conf.d/upstreams.conf"`, doc: "The file to write; an absolute path."},
		"template.empty_after":          {kind: typeDuration, standard: `"30s"`, example: `"2m"`, doc: "A service that loses all instances stays in the file for this long."},
		"template.error_on_missing_key": {standard: `false`, example: `true`, doc: "A missing field of a map is an error instead of `<no value>`."},
		"template.function_denylist":    {example: `["env"]`, doc: "Functions that this template may not use."},
		"template.group":                {standard: "the existing file's, else the agent's", example: `"www-data"`, doc: "The group of the file."},
		"template.left_delim":           {standard: `"{{"`, example: `"<<"`, doc: "The left delimiter of actions."},
		"template.max_parallel":         {standard: "the slot's present limit", example: `2`, doc: "How many hosts may hold `slot` at the same time; 0 lifts the limit."},
		"template.max_shrink":           {kind: "string or number", example: `"50%"`, doc: "The greatest loss of one service, a share or a count, that appears at once."},
		"template.min_instances":        {example: `{ web = 1 }`, doc: "Never render with fewer instances of these services."},
		"template.on_edit":              {standard: `"restore"`, example: `"report"`, doc: "What happens when another program changes the file: `restore` or `report`."},
		"template.perms":                {standard: "the existing file's, else 0644", example: `"0640"`, doc: "The permissions of the file, octal."},
		"template.reload":               {kind: typeCommand, example: `["systemctl", "reload", "nginx"]`, doc: "Runs after the file was replaced. If it fails, the old file returns."},
		"template.reload_timeout":       {kind: typeDuration, standard: `"30s"`, example: `"1m"`, doc: "The longest time of `reload`."},
		"template.right_delim":          {standard: `"}}"`, example: `">>"`, doc: "The right delimiter of actions."},
		"template.sandbox_path":         {example: `"/etc/jorc/templates"`, doc: "The function `file` reads below this directory only."},
		"template.shrink_after":         {kind: typeDuration, standard: `"5m"`, example: `"1m"`, doc: "A loss greater than `max_shrink` appears after this time; `\"0\"`: never."},
		"template.slot":                 {example: `"edge-reload"`, doc: "A slot of the cluster to hold while the file is replaced and reloaded."},
		"template.source":               {example: `"/etc/jorc/templates/upstreams.ctmpl"`, doc: "The file of the template."},
		"template.together":             {example: `"edge"`, doc: "Templates of one name here are replaced and reloaded together or not at all."},
		"template.user":                 {standard: "the existing file's, else the agent's", example: `"www-data"`, doc: "The owner of the file."},
		"template.wait":                 {kind: `string "min:max"`, example: `"50ms:2s"`, doc: "A change is applied when nothing else changed for `min`, after `max` at the latest."},

		"template_options.allow_env":       {example: `["HOSTNAME", "APP_*"]`, doc: "Environment variables that `env`, `mustEnv` and `envOrDefault` may read."},
		"template_options.allow_functions": {example: `["plugin"]`, doc: "Functions that are off by default: `plugin`."},
		"template_options.max_data":        {standard: `67108864`, example: `1048576`, doc: "The most data that one template may read together, in bytes. A list of keys counts 128 bytes more for each key, an instance of a service 512."},
		"template_options.max_output":      {standard: `67108864`, example: `1048576`, doc: "The largest file that a template may make, in bytes."},
		"template_options.render_timeout":  {kind: typeDuration, standard: `"10s"`, example: `"20s"`, doc: "The longest time of one execution."},

		"trigger.event":    {example: `"agent_down"`, doc: "A kind of event ([events](events.md))."},
		"trigger.key":      {example: `"app/config"`, doc: "A key in Consul's KV."},
		"trigger.missed":   {standard: `"skip"`, example: `"run-once"`, doc: "Due times that passed while nothing could start: `\"skip\"` leaves them out, `\"run-once\"` runs the workflow once for all of them."},
		"trigger.prefix":   {example: `"app/"`, doc: "All keys with this prefix."},
		"trigger.schedule": {example: `"0 3 * * *"`, doc: "A cron expression of five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`."},
		"trigger.service":  {example: `"web"`, doc: "The instances and the health of a service."},
		"trigger.splay":    {kind: typeDuration, standard: `"0"`, example: `"10m"`, doc: "Each host starts later by a time of its own below this."},
		"trigger.workflow": {example: `"rebalance"`, doc: "The workflow to run. What changed is in the file `$JORC_CHANGE`."},
		"trigger.zone":     {standard: `"UTC"`, example: `"Europe/Berlin"`, doc: "The time zone of `schedule`."},

		"vault.address":    {example: `"https://127.0.0.1:8200"`, doc: "The URL of Vault."},
		"vault.ca_file":    {example: `"/etc/ssl/vault.pem"`, doc: "The certificate of the authority that signed Vault's certificate."},
		"vault.namespace":  {example: `"ops"`, doc: "The namespace (Vault Enterprise)."},
		"vault.token":      {kind: "refused", doc: "A token must not stand in the configuration: use `token_file` or `VAULT_TOKEN`."},
		"vault.token_file": {example: `"/etc/jorc/vault-token"`, doc: "A file that holds the token. A new token in it is used at once."},

		"workflow.allow_params": {standard: "none", example: `["unit"]`, doc: "The params that a [run](../runs.md#ad-hoc-commands) may pass. A run with any other param fails on this host before its first task."},

		"task.command":       {kind: typeCommand, example: `["puppet", "apply", "/etc/puppet/site.pp"]`, doc: "The program and its arguments."},
		"task.dir":           {standard: `"/"`, example: `"/srv/app"`, doc: "The working directory."},
		"task.env":           {example: `{ LANG = "C" }`, doc: "Variables besides the ones that every task gets ([environment](environment.md))."},
		"task.idempotent":    {standard: `false`, example: `true`, doc: "The task may be run again after it was interrupted."},
		"task.kill_grace":    {kind: typeDuration, standard: `"2s"`, example: `"10s"`, doc: "The time between SIGTERM and SIGKILL."},
		"task.ok_exit_codes": {standard: `[0]`, example: `[0, 2]`, doc: "Exit codes that mean success."},
		"task.only_if":       {kind: "string or list of strings", example: `"/usr/lib/jorc/precondition.sh"`, doc: "A program; the task is left out unless it exits 0."},
		"task.retries":       {standard: `0`, example: `2`, doc: "How often a task that failed is run again."},
		"task.retry_delay":   {kind: typeDuration, standard: `"1s"`, example: `"10s"`, doc: "The time before the first retry; it doubles each time, up to 5m."},
		"task.script":        {example: `"#!/bin/sh\necho {{ .Param \"disks\" }}\n"`, doc: "A template of a program, rendered when the job is made."},
		"task.timeout":       {kind: typeDuration, standard: `"2h"`, example: `"30m"`, doc: "The longest time of the task; `\"0\"` lifts the limit."},
		"task.token_file":    {example: `"/etc/jorc/job-token"`, doc: "The ACL token that the task gets."},
		"task.user":          {standard: "the agent's", example: `"www-data"`, doc: "The user that the task runs as."},
	}
})
