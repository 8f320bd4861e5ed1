#!/bin/sh
# `versitygw --health PATH posix FOLDER`.
set -eu
[ "$1 $3" = "--health posix" ] || {
    echo "versitygw: only what docker-compose.yml asks for is here, not $*" >&2
    exit 1
}
exec s3s-fs --host 0.0.0.0 --port "${VGW_PORT#:}" \
    --access-key "$ROOT_ACCESS_KEY" --secret-key "$ROOT_SECRET_KEY" "$4"
