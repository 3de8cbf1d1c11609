# haproxy's backends from the services with the tag http.
#
# haproxy reads the rendered file after its main one, which holds global, defaults
# (mode http, timeouts) and the frontends. With Debian's unit, /etc/default/haproxy:
#
#     EXTRAOPTS="-S /run/haproxy-master.sock -f /etc/haproxy/backends.cfg"
#
# A reload loses no connection: haproxy runs in master-worker mode (-W or -Ws, as
# Debian's unit does), and the reload is SIGUSR2 to the master. It starts a new worker
# that takes over the listening sockets from the old one (through its own socket pair,
# since haproxy 1.9, without configuration), so that no port is ever closed. The old
# worker finishes its connections and ends. Without -W, the new process needs the
# address of the sockets:
#
#     global
#         stats socket /run/haproxy/admin.sock mode 600 level admin expose-fd listeners
#
#     haproxy -f … -x /run/haproxy/admin.sock -sf "$(cat /run/haproxy.pid)"
#
# `hard-stop-after 1m` in global limits the life of an old worker whose
# connections never end. To drain an instance, deregister it (or put it into
# maintenance) first, and stop it when the old workers have ended.
template "haproxy-backends" {
  source      = "/etc/jorc/templates/haproxy-backends.ctmpl"
  destination = "/etc/haproxy/backends.cfg"
  perms       = "0644"

  check = ["haproxy", "-c", "-q", "-f", "/etc/haproxy/haproxy.cfg", "-f", "{{.Staged}}"]

  # try-: it is not an error if haproxy is not running; it reads the file when it
  # starts. Without systemd: ["/bin/sh", "-c", "kill -USR2 \"$(cat /run/haproxy.pid)\""],
  # with haproxy -W -p /run/haproxy.pid.
  reload = ["systemctl", "try-reload-or-restart", "haproxy"]

  # haproxy may lose a SIGUSR2 during a reload, so changes are spaced.
  wait        = "1s:5s"
  max_shrink  = "50%"
  empty_after = "30s"
}
