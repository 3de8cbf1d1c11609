max_stale = "10m"
reload_signal = "SIGHUP"
kill_signal   = "SIGINT"
consul {
  retry {
    enabled  = true
    attempts = 12
    backoff  = "250ms"
  }
}
syslog {
  enabled  = false
  facility = "LOCAL5"
}
