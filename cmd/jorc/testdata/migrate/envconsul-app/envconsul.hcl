consul {
  address = "CONSUL"
}
vault {
  address                = "VAULT"
  vault_agent_token_file = "DIR/token"
  renew_token            = false
}
pristine = true
upcase   = true
sanitize = true
prefix {
  path = "app/config"
}
secret {
  path   = "secret/db"
  no_prefix = true
  format = "db_{{ key }}"
}
exec {
  command      = ["/usr/bin/env"]
  kill_timeout = "5s"
}
