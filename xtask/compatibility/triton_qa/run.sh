#!/bin/sh
# Runs tests of Triton's own QA against a service that it starts on the ports 8000 and 8001, which the tests have
# built in, with the engines that are the default. Prints how many of each passed; what failed is in FOLDER/SUITE.log.
# Needs git, the `sextant` command, and a Python, PYTHON, with `tritonclient[all]` and `onnx`.
#
#   run.sh FOLDER
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
REVISION=e1db8a60
PYTHON=${PYTHON:-python3}
SERVICE=http://127.0.0.1:8000
mkdir -p "$1"
FOLDER=$(cd "$1" && pwd)
PROCESS=

stop() {
    if [ -n "$PROCESS" ]; then
        kill "$PROCESS"
        wait "$PROCESS" || true
        PROCESS=
    fi
}
trap stop EXIT

# A service with the models of a group.
serve() {
    stop
    sextant serve --listen 127.0.0.1:8000 --data-dir "$FOLDER/data-$1" --set grpc.listen=127.0.0.1:8001 \
        --set v2.shared_memory=true --set v2.raw_answers=true --set limits.max_body_bytes=67108864 \
        --set variants.effort=quick --set variants.max_threads=1 --set variants.max_batch=8 \
        > "$FOLDER/service-$1.log" 2>&1 &
    PROCESS=$!
    until curl --silent --fail "$SERVICE/v2/health/ready" > /dev/null; do sleep 0.2; done
    for model in "$FOLDER/models/$1"/*.onnx; do
        name=$(basename "$model" .onnx)
        name=${name%@*}
        # shellcheck disable=SC2046 # the arguments are several
        sextant --server "$SERVICE" register --application "of-$name" --name "$name" --model "$model" \
            --validation "${model%.onnx}.npz" $(cat "${model%.onnx}.args") > "$FOLDER/register.log" 2>&1 ||
            { echo "$name is not registered:"; tail -1 "$FOLDER/register.log"; }
    done
    # What Triton's version policies say: the newest version answers, and not all of the others are there.
    for versions in "$FOLDER/models/$1"/*.gone; do
        [ -e "$versions" ] || continue
        name=$(basename "$versions" .gone)
        sextant --server "$SERVICE" version promote "$name" 3 > "$FOLDER/promote.log"
        for version in $(cat "$versions"); do
            curl --silent --fail --request DELETE "$SERVICE/v1/models/$name@$version"
        done
    done
}

# suite NAME FOLDER_OF_QA ARGUMENT..: what Python is given there.
suite() {
    name=$1 tests=$2
    shift 2
    (cd "$FOLDER/server/qa/$tests" && "$PYTHON" "$@" > "$FOLDER/$name.log" 2>&1) || true
    said=$(grep -aE '^(Ran|OK|FAILED)' "$FOLDER/$name.log" | tr '\n' ' ')
    echo "$name: ${said:-did not run, see $FOLDER/$name.log}"
}

if [ ! -d "$FOLDER/server" ]; then
    git clone --quiet "${TRITON:-https://github.com/triton-inference-server/server}" "$FOLDER/server"
    git -C "$FOLDER/server" checkout --quiet "$REVISION"
fi
"$PYTHON" "$HERE/models.py" "$FOLDER/server/qa" "$FOLDER/models"
export BACKENDS=onnx ENSEMBLES=0

serve infer
suite infer L0_infer infer_test.py
TEST_SYSTEM_SHARED_MEMORY=1 suite infer-shared-memory L0_infer infer_test.py
serve zero
suite zero L0_infer_zero "$HERE/only_onnx.py" infer_zero_test.py
serve variable
suite variable L0_infer_variable "$HERE/only_onnx.py" infer_variable_test.py
serve reshape
suite reshape L0_infer_reshape "$HERE/only_onnx.py" infer_reshape_test.py
