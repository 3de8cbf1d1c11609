# The demo's configuration: three of the templates that ship with jorc. DIR is the
# demo's directory.
template "nginx" {
  source      = "nginx-upstreams.ctmpl"
  destination = "DIR/files/upstreams.conf"
}
template "hosts" {
  source      = "hosts.ctmpl"
  destination = "DIR/files/hosts"
}
template "hiera" {
  source      = "hiera-services.yaml.ctmpl"
  destination = "DIR/files/services.yaml"
}
