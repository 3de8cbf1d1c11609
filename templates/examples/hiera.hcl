# The addresses of all services in Puppet's hiera data. Puppet reads the file at each
# run, so no reload is needed. In hiera.yaml: `path: services.yaml`.
template "hiera-services" {
  source      = "/etc/jorc/templates/hiera-services.yaml.ctmpl"
  destination = "/etc/puppet/hiera/data/services.yaml"
  create_dirs = true
  perms       = "0644"
  check       = ["ruby", "-ryaml", "-e", "YAML.load_file(ARGV[0])", "{{.Staged}}"]
  wait        = "500ms:5s"
}
