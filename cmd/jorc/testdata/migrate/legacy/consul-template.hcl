consul = "CONSUL"
max_stale = "5m"
wait = "1s:3s"

/* Written for consul-template 0.10. */
template {
  source = "DIR/in/app.ctmpl"
  destination = "DIR/files/app.ini"
  command = "DIR/bin/restart app | tee DIR/log"
  perms = 0640
}
template {
  source = "DIR/in/copy.ctmpl"
  destination = "DIR/files/copy.ini"
  command = "DIR/bin/restart copy"
  backup = true
}
