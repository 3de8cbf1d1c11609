#!/bin/sh
# nginx-check STAGED DESTINATION [NGINX_CONF]
#
# Checks nginx's whole configuration with the file STAGED in place of DESTINATION,
# which is below the directory of NGINX_CONF (default /etc/nginx/nginx.conf). A snippet
# alone is not a configuration, and a check of it would not find a proxy_pass without
# its upstream. The check works on a copy and changes no file of nginx.
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

copy=$(mktemp -d) # readable by its owner only: the files may include keys
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM
cp -RL "$dir/." "$copy"
mkdir -p "$(dirname "$copy${destination#"$dir"}")"
cp "$staged" "$copy${destination#"$dir"}"

# Change absolute paths into the directory to paths into the copy.
quoted=$(printf '%s' "$dir" | sed 's/[^A-Za-z0-9_/-]/[&]/g')
find "$copy" -type f -exec grep -lIF "$dir/" {} + | while IFS= read -r file; do
	sed -i "s#\([[:space:]\"']\)$quoted/#\1$copy/#g" "$file"
done
nginx -t -q -p "$copy/" -c "$copy${conf#"$dir"}"
