#!/bin/sh
# nginx-check STAGED DESTINATION [NGINX_CONF]
#
# Asks nginx whether its whole configuration would be valid with the file STAGED in
# the place of DESTINATION, which lies below the directory of NGINX_CONF (default
# /etc/nginx/nginx.conf). A snippet alone is no configuration, and alone would not
# show that a proxy_pass has lost its upstream. The check works on a copy; nothing
# that nginx uses is changed.
#
# Install it as /usr/lib/jorc/nginx-check.
set -eu
staged=$1
destination=$2
conf=${3:-/etc/nginx/nginx.conf}
dir=$(dirname "$conf")

case $destination in
"$dir"/*) ;;
*)
	echo "nginx-check: $destination does not lie below $dir" >&2
	exit 2
	;;
esac

copy=$(mktemp -d) # readable by its owner only: keys may be among the files
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM
cp -RL "$dir/." "$copy"
mkdir -p "$(dirname "$copy${destination#"$dir"}")"
cp "$staged" "$copy${destination#"$dir"}"

# Absolute paths into the directory now lead into the copy.
quoted=$(printf '%s' "$dir" | sed 's/[^A-Za-z0-9_/-]/[&]/g')
find "$copy" -type f -exec grep -lIF "$dir/" {} + | while IFS= read -r file; do
	sed -i "s#\([[:space:]\"']\)$quoted/#\1$copy/#g" "$file"
done
nginx -t -q -p "$copy/" -c "$copy${conf#"$dir"}"
