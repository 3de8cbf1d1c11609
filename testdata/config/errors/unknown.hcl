clutser = "prod"
consul {
  adress = "127.0.0.1:8500"
  token  = "11111111-2222-3333-4444-555555555555"
}
service "web" {
  prot = 8080
  meta {
    a = "b"
  }
  weights = { passing = 1 }
  check {
    tpc = "localhost:80"
  }
}
sevice "db" {}
template {
  destination = "/run/x"
}
workflow "w" {
  step "a" {}
  task "t" {
    comand = ["true"]
  }
}
entirely_different = 1
