#!/bin/sh
# `mc ready local` and `mc mb --ignore-existing store/BUCKET`.
set -eu
case "$1" in
ready)
    curl --silent --output /dev/null http://localhost:9000/
    ;;
mb)
    # SHA-256 of a body of no bytes.
    nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    address=${MC_HOST_store#http://}
    status=$(curl --silent --output /dev/stderr --write-out '%{http_code}' --request PUT \
        --user "${address%@*}" --aws-sigv4 aws:amz:us-east-1:s3 \
        --header "x-amz-content-sha256: $nothing" \
        "http://${address#*@}/${3#store/}")
    # 409: the bucket is there.
    [ "$status" = 200 ] || [ "$status" = 409 ]
    ;;
*)
    echo "mc: only what docker-compose.yml asks for is here, not $*" >&2
    exit 1
    ;;
esac
