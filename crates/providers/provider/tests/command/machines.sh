#!/bin/sh
# Machines as processes, each with a folder `$FOLDER/{pool}/{id}`; each runs `sh -c "$MACHINE" {pool}`.
set -eu
input=$(cat)
pool=$(printf '%s' "$input" | sed -n 's/.*"pool":"\([^"]*\)".*/\1/p')
mkdir -p "$FOLDER/$pool"
cd "$FOLDER/$pool"

# The texts of a list in the input, one a line.
texts() {
    printf '%s' "$input" | sed -n 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' | tr -d '"'
}

lives() {
    status=$(cat "/proc/$(cat "$1/pid")/status" 2>/dev/null) || return 1
    ! printf '%s' "$status" | grep -q '^State:.[ZX]'
}

# The named machines as an answer.
answer() {
    separator='' machines=''
    for id; do
        state=running
        [ ! -e "$id/ending" ] || state=ending
        since_ms=$(cat "$id/since")
        machines="$machines$separator{\"id\":\"$id\",\"worker\":\"$id\",\"state\":\"$state\",\"since_ms\":$since_ms}"
        separator=,
    done
    printf '{"machines":[%s]}\n' "$machines"
}

# Asks it, and ends it after so many seconds, in the background.
end() {
    touch "$1/ending"
    pid=$(cat "$1/pid")
    kill -TERM "$pid" || true
    FOLDER="$PWD/$1" SECONDS_LEFT="$2" PID="$pid" setsid sh -c '
        n=$((SECONDS_LEFT * 10))
        while [ $n -gt 0 ] && [ -e "$FOLDER" ] && kill -0 "$PID"; do sleep 0.1; n=$((n-1)); done
        kill -KILL "$PID"' >/dev/null 2>&1 </dev/null &
}

case $1 in
list)
    set --
    for folder in */; do
        id=${folder%/}
        [ -e "$id/pid" ] || continue
        if lives "$id"; then set -- "$@" "$id"; else rm -r "$id"; fi
    done
    answer "$@"
    ;;
up)
    set --
    for id in $(texts workers); do
        mkdir "$id"
        echo "$(date +%s)000" >"$id/since"
        setsid sh -c "$MACHINE" "$pool" >"$id/log" 2>&1 </dev/null &
        echo $! >"$id/pid"
        set -- "$@" "$id"
    done
    answer "$@"
    ;;
down)
    end_ms=$(printf '%s' "$input" | sed -n 's/.*"end_ms":\([0-9]*\).*/\1/p')
    for id in $(texts machines); do end "$id" $(((end_ms + 999) / 1000)); done
    ;;
*)
    echo "what is \`$1\`?" >&2
    exit 2
    ;;
esac
