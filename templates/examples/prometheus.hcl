# Prometheus scrapes the services with the tag metrics. It reads the file
# again when it changes, so no reload is needed. In prometheus.yml:
#
#     scrape_configs:
#       - job_name: consul
#         file_sd_configs:
#           - files: [/etc/prometheus/targets/*.json]
template "prometheus-targets" {
  source      = "/etc/jorc/templates/prometheus-file-sd.json.ctmpl"
  destination = "/etc/prometheus/targets/consul.json"
  create_dirs = true
  perms       = "0644"
  check       = ["jq", "-e", "type == \"array\"", "{{.Staged}}"]
  wait        = "1s:10s"
}
