#!/bin/sh
# migrate.sh TOOL OUT [PATH…] [-- FLAG…]: the steps of docs/migration.md. It succeeds if
# jorc would not change a rendered file.
set -eu
tool=$1 out=$2
shift 2
jorc migrate "$tool" --out "$out" "$@" || [ $? -eq 1 ] # 1: stderr names settings without an equivalent
jorc config validate "$out"
jorc render --diff --config "$out"
