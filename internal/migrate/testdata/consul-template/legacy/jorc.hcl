# Written by 'jorc migrate consul-template'.

consul {
  # A file from 2016: addresses and windows are strings.
  address = "consul.internal:8500"
}

template "config.ini" {
  source      = "/work/web.ctmpl"
  destination = "/srv/web/config.ini"
  create_dirs = true
  perms       = "1204"
  wait        = "10s:40s"
  backup      = true
  reload      = ["sh", "-c", "service web reload"]
}
