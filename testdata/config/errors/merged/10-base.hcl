cluster = "a"
consul {}
service "web" {}
