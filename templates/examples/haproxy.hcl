# haproxy's backends follow the services with the tag http.
#
# haproxy reads the rendered file after its own one, which holds global, defaults
# (mode http, timeouts) and the frontends. With Debian's unit, /etc/default/haproxy:
#
#     EXTRAOPTS="-S /run/haproxy-master.sock -f /etc/haproxy/backends.cfg"
#
# What makes a reload hitless: haproxy runs in master-worker mode (-W or -Ws, as
# Debian's unit does), and the reload is SIGUSR2 to the master. It starts a new worker
# that takes over the listening sockets from the old one (through its own socket pair,
# since haproxy 1.9; nothing need be configured), so that no connection meets a closed
# port; the old worker finishes what it has and leaves. Without -W, the new process
# must be told where to get the sockets:
#
#     global
#         stats socket /run/haproxy/admin.sock mode 600 level admin expose-fd listeners
#
#     haproxy -f … -x /run/haproxy/admin.sock -sf "$(cat /run/haproxy.pid)"
#
# `hard-stop-after 1m` in global bounds how long an old worker may live on for
# connections that never end. What leaves is drained when it deregisters (or goes into
# maintenance) first, and stops when the old workers are gone.
template "haproxy-backends" {
  source      = "/etc/jorc/templates/haproxy-backends.ctmpl"
  destination = "/etc/haproxy/backends.cfg"
  perms       = "0644"

  check = ["haproxy", "-c", "-q", "-f", "/etc/haproxy/haproxy.cfg", "-f", "{{.Staged}}"]

  # try-: an haproxy that is not running yet is no error; it will read the file when it
  # starts. Without systemd: ["/bin/sh", "-c", "kill -USR2 \"$(cat /run/haproxy.pid)\""],
  # with haproxy -W -p /run/haproxy.pid.
  reload = ["systemctl", "try-reload-or-restart", "haproxy"]

  # haproxy may lose a SIGUSR2 that comes while it is still reloading: changes are kept apart.
  wait        = "1s:5s"
  max_shrink  = "50%"
  empty_after = "30s"
}
