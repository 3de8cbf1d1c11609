# Written by 'jorc migrate consul-template'.

consul {
  address   = "127.0.0.1:8500"
  namespace = "team"
  auth_file = "/etc/jorc/consul.auth"
}

template "app.conf" {
  source      = "/etc/app/app.conf.ctmpl"
  destination = "/etc/app/app.conf"
  create_dirs = true
  wait        = "2s:6s"
  reload      = ["sh", "-c", "systemctl restart app"]
}

template "flags.json" {
  contents    = "{{ key \"app/flags\" }}\n"
  destination = "/etc/app/flags.json"
  create_dirs = true
  perms       = "0640"
  reload      = ["/usr/bin/app", "reload"]
}
