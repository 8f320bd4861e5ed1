#!/bin/sh
# Does at the first start what the image does: makes the user and the database of the environment with
# a server that listens on its socket alone, and then starts the one that others reach.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" > "$password"
    initdb --username "$POSTGRES_USER" --pwfile "$password" --auth-local trust --auth-host scram-sha-256
    rm "$password"
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl start --wait --options '-c listen_addresses='
    createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl stop --mode fast --wait
fi
exec postgres -c listen_addresses='*'
