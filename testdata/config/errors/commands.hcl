template "t" {
  contents    = "x"
  destination = "/run/jorc-test/t"
  check       = "nginx -t"
  reload      = "systemctl reload nginx && echo ok"
}
template "u" {
  contents    = "x"
  destination = "/run/jorc-test/u"
  check       = []
  reload      = ["", "x"]
}
workflow "w" {
  task "a" {
    command = "true"
  }
  task "b" {
    command = [1]
    only_if = 3
  }
  task "c" {
    command = ["true"]
    script  = "true"
    only_if = ""
  }
  task "d" {
    ok_exit_codes = [256]
  }
  task "e" {
    command       = ["true"]
    ok_exit_codes = []
    timeout       = "-1s"
    retries       = -1
  }
}
workflow "empty" {}
service "web" {
  check {
    script   = "/bin/check"
    interval = "1s"
  }
}
