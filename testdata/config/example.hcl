cluster = "prod"                       # defaults: cluster "default", node = Consul's node name
on_stop = "keep"                       # services stay registered; or "deregister", "maintenance"

http {
  address = "127.0.0.1:8520"              # /v1/status /healthz /metrics, the dashboard on /
}
consul {
  address         = "127.0.0.1:8500"
  token_file      = "/etc/jorc/token"
  max_connections = 64
}

service "web" {
  port             = 8080
  tags             = ["http"]
  tagged_addresses = { eth0 = "10.0.0.5" }
  check {
    script   = ["/usr/lib/checks/web.sh"]   # or http, tcp, grpc, ttl
    interval = "10s"
    timeout  = "5s"
  }
}

requires "mysql" {                     # at the top: gates static configuration; inside a task or template: gates only that
  count = 1
  for   = "functional"                 # or "addressable", "reachable"
}

static {                               # consistent configuration, once per version
  workflow   = "converge"
  validation = "validate"
  paths      = ["/etc/nginx/nginx.conf", "/etc/mysql/**"]
}

template "upstreams" {                 # eventually consistent configuration
  source        = "/etc/jorc/templates/upstreams.ctmpl"
  destination   = "/etc/nginx/conf.d/upstreams.conf"
  perms         = "0644"
  check         = ["nginx", "-t", "-c", "{{.Staged}}"]
  reload        = ["systemctl", "reload", "nginx"]
  min_instances = { web = 1 }          # never render fewer
  empty_after   = "30s"
  wait          = "50ms:2s"            # quiescence min:max; default none
  together      = "edge"               # templates of one name are replaced and reloaded together or not at all
  slot          = "edge-reload"        # fleet slot to hold while reloading
  max_parallel  = 2                    # holders of that slot in the cluster; 0 = no limit
}

workflow "converge" {
  task "puppet" {
    command       = ["puppet", "apply", "--detailed-exitcodes", "/etc/puppet/site.pp"]
    ok_exit_codes = [0, 2]
    timeout       = "30m"
    retries       = 2
    idempotent    = true               # may be run again after it was interrupted
    only_if       = "/usr/lib/jorc/precondition.sh"
  }
}
trigger "pool-changed" {
  service  = "web"                     # or key = "…", prefix = "…", event = "node_down"
  workflow = "rebalance"               # once per change; what changed is in the file $JORC_CHANGE
}
member {
  roles  = ["db"]
  zone   = "rack-7"
  params = { disks = 4 }
}
orchestrator {
  enabled  = true
  interval = "10s"
  clusters = ["prod"]                  # default: its own
}
log_store {
  dir = "/srv/logs"                    # or s3 { endpoint, bucket, … }
}
