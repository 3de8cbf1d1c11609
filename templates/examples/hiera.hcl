# Puppet finds the addresses of all services in its hiera data. Puppet reads it at
# each run: nothing is reloaded. In hiera.yaml: `path: services.yaml`.
template "hiera-services" {
  source      = "/etc/jorc/templates/hiera-services.yaml.ctmpl"
  destination = "/etc/puppet/hiera/data/services.yaml"
  create_dirs = true
  perms       = "0644"
  check       = ["ruby", "-ryaml", "-e", "YAML.load_file(ARGV[0])", "{{.Staged}}"]
  wait        = "500ms:5s"
}
