cluster   = "a/b"
prefix    = "jorc/"
node      = ".."
on_stop   = "kepe"
log_level = "loud"
http {
  address = "8520"
}
consul {
  address     = "ftp://consul:8500"
  client_cert = "/etc/ssl/client.pem"
}
dns {
  address = "127.0.0.1:0"
}
vault {
  address = "https://user:hunter2@vault:8200"
}
template_options {
  allow_functions = ["plugins", "writeToFile"]
  render_timeout  = "0s"
  max_output      = 0
}
log_store {}
trigger "t" {}
static {
  paths = ["etc/x", "/etc/[", "/etc/*/../x", ""]
}
