#!/bin/sh
# The GPU suite on a machine without Rust and without a network (docs/gpu.md):
#
#   sh run.sh [--seconds N] [--device N] [--only "PART PART .."] [--small] [--every N]
#
# Each part is a process of its own under a time limit: what breaks one part costs that part alone. Results are one JSON
# object per line, as they come, to standard output and to `results.jsonl` in the folder $OUT, or in `results` of the
# present folder; what the parts say besides is in `log.txt` beside it. After each part a line has its `exit_status`:
# 0 where all is well, 1 where something is wrong, 2 where a device or a library is missing, 124 where its time was over.
#
# --seconds N   all parts together (470): what is left when the others are done goes to the last, the jitter
# --device N    which device (0)
# --only PARTS  these alone: device, operators, copies, throughput, operations, pytorch, pytorch-compile, loads,
#               infer-and-load, two-models, networks, providers, service, jitter
# --small       small networks and little time, for emulated devices
# --every N     compare every Nth case of the operators (1)
#
# Needs sh, timeout (coreutils), the graphics driver, and CUDA's libraries and ONNX Runtime as Python packages or where
# the loader finds them. SEXTANT_TORCH_PYTHON names a Python that has PyTorch, SEXTANT_GPU_ONNXRUNTIME the
# `libonnxruntime.so.*` of the package `onnxruntime-gpu`; both are left out where they are missing. The part `service`
# runs where `sextant` lies beside this script (`cargo xtask gpu-kit --service`); its Python needs numpy, onnx and
# onnxruntime.
set -u

started=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
seconds=470
device=0
every=1
small=
only=

while [ $# -gt 0 ]; do
    case $1 in
    --small) small=--small ;;
    --seconds | --device | --every | --only)
        [ $# -gt 1 ] || { echo "\`$1\` needs a value" >&2; exit 64; }
        case $1 in
        --seconds) seconds=$2 ;;
        --device) device=$2 ;;
        --every) every=$2 ;;
        --only) only=" $2 " ;;
        esac
        shift
        ;;
    *)
        echo "\`$1\` is not known: the head of $0 says what is" >&2
        exit 64
        ;;
    esac
    shift
done

known="device operators copies throughput operations pytorch pytorch-compile loads infer-and-load two-models networks providers service jitter"
for name in $only; do
    case " $known " in
    *" $name "*) ;;
    *)
        echo "there is no part \`$name\`: name some of $known" >&2
        exit 64
        ;;
    esac
done

out=${OUT:-results}
mkdir -p "$out" || exit 64
results=$out/results.jsonl
log=$out/log.txt
: >"$results"
: >"$log"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The suite looks for libraries below the packages of the `python3` that is first on the path.
python=${SEXTANT_TORCH_PYTHON:-python3}
case $python in
*/*) PATH=$(dirname "$python"):$PATH ;;
esac
# Where containers often have the graphics driver.
if [ -d /usr/local/nvidia/lib64 ]; then
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64
    export LD_LIBRARY_PATH
fi
# The first process compiles the kernels, the others find them.
SEXTANT_CUDA_KERNELS=$work/kernels
ORT_DISABLE_TELEMETRY=1
export PATH SEXTANT_CUDA_KERNELS ORT_DISABLE_TELEMETRY

left() {
    echo $((started + seconds - $(date +%s)))
}

# Time for a figure: next to none where devices are emulated.
measuring() {
    if [ -n "$small" ]; then echo 1; else echo "$1"; fi
}

# A line about a part: its exit status, its time, and the end of what it said.
finished() {
    said=$(tail -n 6 "$work/stderr" | LC_ALL=C tr -cd '\11\12\40-\176' | tr '\n\t' '| ' | cut -c1-1500 |
        sed 's/\\/\\\\/g; s/"/\\"/g')
    printf '{"experiment":"gpu","part":"%s","cell":"%s","metric":"exit_status","value":%s,"unit":"status","seconds":%s,"stderr":"%s"}\n' \
        "$1" "$1" "$2" "$3" "$said" | tee -a "$results"
}

worst=0
# part NAME LIMIT COMMAND..: runs a part for at most LIMIT seconds, less where less is left.
part() {
    name=$1
    limit=$2
    shift 2
    # An emulated device is as fast as a busy processor lets it be.
    if [ -n "$small" ]; then limit=$((limit * 10)); fi
    case $only in
    '' | *" $name "*) ;;
    *) return ;;
    esac
    over=$(left)
    if [ "$over" -lt "$limit" ]; then limit=$over; fi
    : >"$work/stderr"
    if [ "$limit" -lt 3 ]; then
        echo "no time was left: \`--seconds\` gives more" >"$work/stderr"
        finished "$name" 124 0
        worst=1
        return
    fi
    before=$(date +%s)
    {
        timeout -k 5 "$limit" "$@" 2>"$work/stderr"
        echo $? >"$work/status"
    } | tee -a "$results"
    status=$(cat "$work/status")
    {
        echo "--- $name: exit status $status"
        cat "$work/stderr"
    } >>"$log"
    finished "$name" "$status" $(($(date +%s) - before))
    # That there is no PyTorch is no fault of the suite.
    case $name:$status in
    *:0 | pytorch*) ;;
    *:2) [ "$worst" -eq 1 ] || worst=2 ;;
    *) worst=1 ;;
    esac
}

# suite NAME LIMIT SECONDS ..: a part of the suite that measures for SECONDS.
suite() {
    name=$1
    limit=$2
    time=$3
    shift 3
    part "$name" "$limit" "$here/gpu_suite" --only "$name" --seconds "$time" --device "$device" $small "$@"
}

{
    date -u
    uname -a
    command -v "$python"
    "$python" --version
    timeout 20 nvidia-smi
} >>"$log" 2>&1

suite device 60 1
suite operators 100 1 --every "$every"
suite copies 30 1
suite throughput 80 "$(measuring 24)"
suite operations 60 1
part pytorch 80 "$python" "$here/pytorch.py" --ways eager,graph --device "cuda:$device" $small
part pytorch-compile 120 "$python" "$here/pytorch.py" --ways compile --device "cuda:$device" $small
suite loads 80 1
suite infer-and-load 75 "$(measuring 18)"
suite two-models 60 "$(measuring 12)"
suite networks 80 1
if [ -n "${SEXTANT_GPU_ONNXRUNTIME:-}" ]; then
    part providers 150 env ORT_DYLIB_PATH="$SEXTANT_GPU_ONNXRUNTIME" "$here/gpu_suite" --only providers \
        --seconds "$(measuring 16)" --device "$device" $small
fi
if [ -e "$here/sextant" ]; then
    part service 330 "$python" "$here/service.py" --seconds "$(measuring 4)" --device "$device" $small
fi
# Opening the device and loading the network take time, too.
rest=$(($(left) - 20))
if [ "$rest" -lt 1 ]; then rest=1; fi
suite jitter "$(($(left) - 2))" "$(measuring "$rest")"

exit "$worst"
