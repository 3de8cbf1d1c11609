consul {
  token = "hunter2", address = "x"
}
