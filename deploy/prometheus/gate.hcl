# A gate of rollouts that asks Prometheus, for a manager or the orchestrator's host:
#     jorc update trigger VERSION --batches 1,10%,100% --bake 5m --gate error-rate --on-failure rollback
# promtool comes with Prometheus (Debian: apt-get install prometheus). Change the address and the
# query. The query answers 0 or 1, and nothing without samples: then the gate asks again.
workflow "error-rate" {
  task "ask" {
    env = {
      PROMETHEUS = "http://127.0.0.1:9090"
      QUERY      = "max(app_error_ratio{version=\"{{.Param `gate/version`}}\"}) > bool 0.01"
    }
    script     = <<-EOT
      {{template "cluster-utilities.tmpl" .}}
      answer=$(promtool query instant "$PROMETHEUS" "$QUERY") || jorc_not_yet "Prometheus does not answer"
      case $answer in
        "") jorc_not_yet "Prometheus has no samples yet" ;;
        *"=> 0 @"*) echo "few errors" ;;
        *) echo "too many errors"; exit 1 ;;
      esac
    EOT
    timeout    = "1m"
    idempotent = true # another manager may ask again
  }
}
