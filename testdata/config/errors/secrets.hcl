consul {
  token   = "hunter2"
  address = "http://me:hunter2@localhost"
}
api_token = "hunter2"
service "web" {
  check {
    http = "http://x"
    header = { Authorization = ["Bearer hunter2"], X = 1 }
  }
}
workflow "w" {
  task "t" {
    command = ["true"]
    env     = { DB_PASSWORD = "hunter2", N = 3 }
  }
}
