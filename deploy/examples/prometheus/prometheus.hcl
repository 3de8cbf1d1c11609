# On the host with Prometheus, which reads the file again when it changes.
template "prometheus-targets" {
  source      = "/etc/jorc/templates/prometheus-file-sd.json.ctmpl"
  destination = "/etc/prometheus/targets/consul.json"
  create_dirs = true
  perms       = "0644"
  check       = ["jq", "-e", "type == \"array\"", "{{.Staged}}"]
  wait        = "1s:10s"
}
