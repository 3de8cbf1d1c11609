# Reboots each night the hosts that ask for it with /run/reboot-required, as Debian and Ubuntu do after an upgrade:
# drained, within the budget, one host after the other. A rule of the cluster begins that:
#
#     jorc cluster profile set cluster/rules '[{"name": "reboots", "workflow": "reboot", "schedule": "0 3 * * *",
#         "filter": "Status.reboot == \"pending\"", "max_parallel": "1", "min_healthy": "30s"}]'
trigger "reboot-required" {
  schedule = "*/10 * * * *"
  splay    = "5m"
  workflow = "reboot-required"
}

# It says in the host's status whether a reboot is pending.
workflow "reboot-required" {
  task "say" {
    script     = <<-EOT
      state=success
      [ ! -e /run/reboot-required ] || state=pending
      jorc status set reboot "$state"
    EOT
    idempotent = true
  }
}

workflow "reboot" {
  reboots = true # a run of it takes the host out of service
  task "reboot" {
    only_if    = ["test", "-e", "/run/reboot-required"]
    script     = <<-EOT
      {{template "cluster-utilities.tmpl" .}}
      jorc_reboot "packages ask for it: $(cat /run/reboot-required.pkgs 2>/dev/null)"
    EOT
    idempotent = true
  }
  task "say" {
    command    = ["jorc", "status", "set", "reboot", "success"]
    idempotent = true
  }
}
