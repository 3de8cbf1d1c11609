# Everything that can be configured, once.
cluster      = "prod"
node         = "web-1"
prefix       = "sites/jorc"
state_dir    = "/var/lib/jorc-prod"
version_file = "/etc/current_version"
on_stop      = "maintenance"
log_level    = "debug"
log_json     = true
reboot_command = ["/sbin/reboot"]

http {
  address = "[::1]:8521"
}
control {
  socket = "run/control.sock"
  group  = "operators"
}
fleetlock {
  users = ["zincati", "990"]
  drain = "30s"
}
consul {
  address         = "https://consul.example:8501"
  token_file      = "token"
  ca_file         = "/etc/ssl/consul.pem"
  ca_path         = "/etc/ssl/consul.d"
  client_cert     = "/etc/ssl/client.pem"
  client_key      = "/etc/ssl/client.key"
  tls_server_name = "server.dc1.consul"
  namespace       = "ops"
  partition       = "edge"
  datacenter      = "dc2"
  max_connections = 8
}
dns {
  address = "::1"
}
vault {
  address    = "https://vault.example:8200"
  token_file = "/etc/vault/token"
  namespace  = "ops"
  ca_file    = "/etc/ssl/vault.pem"
}
template_options {
  allow_functions = ["plugin"]
  allow_env       = ["HOSTNAME", "APP_*"]
  render_timeout  = "20s"
  max_output      = 1048576
}

service "api" {
  id                  = "api-1"
  address             = "10.0.0.1"
  port                = 80
  tags                = ["http", "v2"]
  meta                = { version = "2" }
  enable_tag_override = true
  on_stop             = "deregister"
  tagged_addresses = {
    lan     = "10.0.0.1"
    wan     = "example.com:8080"
    lan_v6  = "[::1]:81"
    bare_v6 = "fd00::1"
    consul  = { address = "10.0.0.2", port = 82 }
  }
  weights {
    passing = 10
    warning = 2
  }
  check {
    id                                = "api-http"
    name                              = "answers"
    notes                             = "asks the front page"
    http                              = "https://127.0.0.1/health"
    method                            = "POST"
    header                            = { Accept = ["text/plain", "*/*"], X-Probe = "1" }
    body                              = "{}"
    interval                          = "10s"
    tls_server_name                   = "api.example"
    tls_skip_verify                   = true
    status                            = "warning"
    success_before_passing            = 2
    failures_before_warning           = 1
    failures_before_critical          = 3
    deregister_critical_service_after = "1h"
  }
  check {
    tcp      = "localhost:80"
    interval = "5s"
    timeout  = "1s"
  }
  check {
    udp      = "[::1]:53"
    interval = "5s"
  }
  check {
    grpc         = "127.0.0.1:9000/app.Service"
    grpc_use_tls = true
    interval     = "5s"
  }
  check {
    h2ping   = "127.0.0.1:9443"
    interval = "5s"
  }
  check {
    ttl = "15s"
  }
  check {
    alias_service = "db"
  }
}
service "odd name, ünïcode / slash" {}

requires "http.web@dc2=3" {
  count = 3
  for   = "reachable"
}

static {
  workflow            = "converge"
  validation          = "validate"
  validation_interval = "1m"
  paths               = ["/jorc-test/app/", "/jorc-test/{a,b}/*.conf"]
}

template "inline" {
  contents             = <<-EOT
    {{ range service "web" }}server {{ .Address }}:{{ .Port }};
    {{ end }}
  EOT
  destination          = "/run/jorc-test/inline.conf"
  perms                = "600"
  user                 = "nginx"
  group                = "nginx"
  create_dirs          = true
  left_delim           = "[["
  right_delim          = "]]"
  error_on_missing_key = true
  function_denylist    = ["file"]
  sandbox_path         = "templates"
  check                = ["true"]
  check_timeout        = "5s"
  reload               = ["true"]
  reload_timeout       = "6s"
  min_instances        = { web = 2, "odd/name" = 0 }
  max_shrink           = 3
  shrink_after         = "1m"
  empty_after          = "0s"
  allow_empty          = true
  on_edit              = "report"
  wait                 = "5s"
  requires "mysql" {}
}
template "relative" {
  source      = "templates/relative.ctmpl"
  destination = "/run/jorc-test/relative.conf"
  max_shrink  = "50%"
}

workflow "converge" {
  disturbs = true
  reboots  = true
  task "script" {
    script      = "echo {{.Version}} $${HOME}"
    user        = "app"
    dir         = "/srv"
    env         = { LANG = "C" }
    token_file  = "/etc/jorc/task-token"
    retry_delay = "3s"
    kill_grace  = "30s"
    requires "cache" {
      for = "addressable"
    }
  }
}
workflow "validate" {
  task "look" {
    command = ["true"]
    only_if = "/bin/has space"
  }
}

trigger "key" {
  key      = "app/config"
  workflow = "converge"
}
trigger "prefix" {
  prefix   = "app/"
  workflow = "converge"
}
trigger "event" {
  event    = "node_down"
  workflow = "converge"
}

member {
  roles         = ["db", "manager"]
  zone          = "rack-7"
  params        = { disks = 4, ratio = 0.5, ssd = true, names = ["a", null], nested = { deep = "yes" } }
  meta          = { owner = "team" }
  leave_on_stop = true
  provides      = ["mysql"]
}
orchestrator {}
log_store {
  s3 {
    endpoint         = "s3.example:9000"
    bucket           = "logs"
    region           = "eu-1"
    prefix           = "jorc/"
    credentials_file = "/etc/jorc/s3"
    insecure         = true
  }
}
