# /etc/hosts from the catalog, for programs that cannot use Consul's DNS. The C
# library reads the file at each look-up, so no reload is needed. In a container
# /etc/hosts is often a mounted file, which cannot be replaced: render to another
# file there, such as one that dnsmasq reads (addn-hosts=, reload with SIGHUP).
template "hosts" {
  source      = "/etc/jorc/templates/hosts.ctmpl"
  destination = "/etc/hosts"
  perms       = "0644"
  check       = ["grep", "-q", "^127\\.0\\.0\\.1[[:space:]]localhost", "{{.Staged}}"]
  wait        = "100ms:2s"
}
