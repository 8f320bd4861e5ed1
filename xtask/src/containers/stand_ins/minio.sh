#!/bin/sh
# `minio server FOLDER`.
set -eu
exec s3s-fs --host 0.0.0.0 --port 9000 \
    --access-key "$MINIO_ROOT_USER" --secret-key "$MINIO_ROOT_PASSWORD" "$2"
