service {
  name = upper("x")
  connect {
    sidecar_service {}
  }
  check {
    args = "true"
    ttl  = "5"
  }
}
