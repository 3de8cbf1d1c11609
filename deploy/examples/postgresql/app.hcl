# On each host of an application: where the primary is.
template "database" {
  contents      = <<-EOT
    {{- range service "primary.postgres" }}{{ if regexMatch "^[0-9A-Fa-f.:]+$" .Address -}}
    DATABASE_HOST={{ .Address }}
    {{ end }}{{ end -}}
  EOT
  destination   = "/etc/app/database.env"
  create_dirs   = true
  perms         = "0644"
  min_instances = { postgres = 1 } # the last primary stays until there is another
  check         = ["awk", "END { exit NR != 1 }", "{{.Staged}}"] # one, not two
  reload        = ["systemctl", "try-restart", "app"]
}
