# Restarts a service of systemd on all hosts: drained, within the budget, one host after the other:
#
#     jorc cluster run restart --param service=nginx --max-parallel 1 --min-healthy 30s
workflow "restart" {
  disturbs     = true
  allow_params = ["service"]
  task "restart" {
    command    = ["systemctl", "restart", "--", "{{.Param \"service\"}}"]
    idempotent = true
  }
  task "active" {
    command    = ["systemctl", "is-active", "--quiet", "--", "{{.Param \"service\"}}"]
    idempotent = true
  }
}
