# nginx's upstreams from the services with the tag http.
#
# /etc/nginx/nginx.conf includes conf.d/*.conf in its http block, as Debian's does.
# A server block uses an upstream by its name:
#
#     location / {
#         proxy_pass http://web;
#         proxy_http_version 1.1;
#         proxy_set_header Connection "";
#     }
#
# A reload loses no connection: nginx's new workers take over the listening sockets, the old
# ones finish their requests. To drain an instance, deregister it (or put it into
# maintenance) first, and stop it after the reload plus the longest request.
template "nginx-upstreams" {
  source      = "/etc/jorc/templates/nginx-upstreams.ctmpl"
  destination = "/etc/nginx/conf.d/upstreams.conf"
  perms       = "0644"

  # nginx -t needs a whole configuration: nginx-check.sh, beside this file, gives it
  # a copy of /etc/nginx that holds the staged file. `nginx -s reload` itself reports
  # success before nginx has read anything, so only the check rejects a bad file.
  check = ["/usr/lib/jorc/nginx-check", "{{.Staged}}", "{{.Destination}}"]

  # try-: it is not an error if nginx is not running; it reads the file when it
  # starts. Without systemd: ["nginx", "-s", "reload"].
  reload = ["systemctl", "try-reload-or-restart", "nginx"]

  # One reload for instances that change at the same time.
  wait        = "100ms:2s"
  max_shrink  = "50%" # of one service's instances at once
  empty_after = "30s"
}
