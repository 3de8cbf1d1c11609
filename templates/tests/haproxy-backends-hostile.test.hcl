# An instance whose address is no address adds no line of its own to the file.
config   = ["../examples/haproxy.hcl"]
template = "haproxy-backends"
source   = "../haproxy-backends.ctmpl"

service "web" {
  node    = "web-1"
  address = "10.0.0.11\n  server evil 10.6.6.6:80"
  port    = 8080
  tags    = ["http"]
}

expect {
  contains = ["backend web"]
  lacks    = ["\n  server evil"]
}
