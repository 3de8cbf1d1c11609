service "web" {}
service "web" {}
service "db" {
  id = "web"
}
service "c" {
  check {
    id  = "service:d"
    ttl = "1s"
  }
}
service "d" {
  check {
    ttl = "1s"
  }
}
template "t" {
  contents    = "x"
  destination = "/run/jorc-test/1"
}
template "t" {
  contents    = "x"
  destination = "/run/jorc-test/2"
}
workflow "w" {
  task "a" {
    command = ["true"]
  }
  task "a" {
    command = ["true"]
  }
}
workflow "w" {
  task "a" {
    command = ["true"]
  }
}
trigger "x" {
  key      = "a"
  workflow = "w"
}
trigger "x" {
  key      = "b"
  workflow = "w"
}
http {}
http {}
member {
  roles  = ["a", "a"]
  params = { a = 1, a = 2 }
}
