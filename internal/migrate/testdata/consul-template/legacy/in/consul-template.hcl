// A file from 2016: addresses and windows are strings.
consul = "consul.internal:8500"
wait   = "10s"
token  = "a-token-at-the-top"

template {
  source      = "web.ctmpl"
  destination = "/srv/web/config.ini"
  command     = "service web reload"
  perms       = 644
  Backup      = true
  comand      = "misspelt"
}

template {
  source = "no-destination.ctmpl"
}
