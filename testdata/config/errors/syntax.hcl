service "web" {
  port = 
}
consul {
  token_file = "unclosed
}
