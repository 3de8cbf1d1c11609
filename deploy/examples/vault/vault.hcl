# On each host of the application: a file with secrets of Vault.
vault {
  address    = "http://127.0.0.1:8200" # of another host: https://, and ca_file
  token_file = "/etc/jorc/vault-token"
}

template "app-secrets" {
  source               = "/etc/jorc/templates/app-secrets.ctmpl"
  destination          = "/etc/app/secrets.env"
  create_dirs          = true
  group                = "www-data" # the group that the application runs as
  perms                = "0640"
  error_on_missing_key = true # a secret without the key: the file stays as it is
  check                = ["grep", "-q", "^DB_PASSWORD='..*'$", "{{.Staged}}"]
  reload               = ["systemctl", "try-restart", "app"]

  # One host at a time. A stage would do more, but tell Consul a digest of each secret.
  slot         = "app-restart"
  max_parallel = 1
}
