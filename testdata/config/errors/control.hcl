http {
  address = "0.0.0.0:8520"
}
control {
  group = "operators"
}
fleetlock {
  users = ["zincati", "", "a b", "zincati"]
  drain = "2h"
}
