# Upgrades all packages of a Debian or Ubuntu, and reboots it if they ask for that: drained, within the budget,
# one host after the other:
#
#     jorc cluster run patch --max-parallel 1 --min-healthy 30s
workflow "patch" {
  reboots = true # a run of it takes the host out of service
  task "lists" {
    command    = ["apt-get", "-q", "update"]
    retries    = 3
    idempotent = true
  }
  task "upgrade" {
    command    = ["apt-get", "-q", "-y", "full-upgrade"]
    env        = { DEBIAN_FRONTEND = "noninteractive" }
    timeout    = "30m"
    idempotent = true
  }
  task "reboot" {
    only_if    = ["test", "-e", "/run/reboot-required"]
    script     = <<-EOT
      {{template "cluster-utilities.tmpl" .}}
      jorc_reboot "packages ask for it: $(cat /run/reboot-required.pkgs 2>/dev/null)"
    EOT
    idempotent = true
  }
}
