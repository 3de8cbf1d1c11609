cluster = env("CLUSTER")
node    = "${hostname}"
prefix  = upper("x")
member {
  params = {
    a = 1 + 1
    b = [for x in [1, 2] : x]
    c = var.x
    d = true ? 1 : 2
    (e) = 1
    f = (1)
  }
}
service "web" {
  tags = [local.tag]
  port = -1
}
