# The example of 'jorc dev'. Change what you like, then let the agent read it again:
# kill -HUP the pid that 'jorc dev' has printed.

# A service with a script check: jorc runs it and tells Consul. 0 passes, 1 warns, all
# others are critical. This one passes as long as the file worker.down is not there.
service "worker" {
  port = 9000

  check {
    script   = ["sh", "-c", "test ! -e \"$1\" || { echo \"$1 is there\"; exit 2; }", "worker", [[ path "worker.down" ]]]
    interval = "500ms"
    timeout  = "5s"
  }
}

# What services and keys are there now. A reload command runs when the file has changed.
template "overview" {
  source      = [[ path "templates/overview.ctmpl" ]]
  destination = [[ path "files/overview.txt" ]]
  reload      = ["sh", "-c", "echo \"$(date +%T) overview.txt is new\" >>\"$1\"", "reload", [[ path "files/reloads.log" ]]]
  empty_after = "3s" # a service whose last instance left stays in the file for so long
}

# The nginx upstreams that ship with jorc.
template "nginx" {
  source      = [[ path "templates/nginx-upstreams.ctmpl" ]]
  destination = [[ path "files/upstreams.conf" ]]
}
