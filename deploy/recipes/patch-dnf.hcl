# Upgrades all packages of a Fedora or an enterprise Linux, and reboots it if they ask for that (dnf-plugins-core tells):
# drained, within the budget, one host after the other:
#
#     jorc cluster run patch --max-parallel 1 --min-healthy 30s
workflow "patch" {
  reboots = true # a run of it takes the host out of service
  task "upgrade" {
    command    = ["dnf", "-q", "-y", "--refresh", "upgrade"]
    timeout    = "30m"
    retries    = 3
    idempotent = true
  }
  task "reboot" {
    script     = <<-EOT
      {{template "cluster-utilities.tmpl" .}}
      if asks=$(dnf -q needs-restarting -r); then
        exit 0
      fi
      case $asks in
      *"Reboot is required"*) jorc_reboot "packages ask for it: $asks" ;;
      esac
      echo "whether a reboot is required is not known: $asks"
      exit 1
    EOT
    idempotent = true
  }
}
