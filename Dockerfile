# Builds the one binary and puts it, with the pinned libraries of ONNX Runtime and OpenVINO, into a small image.
#
#   docker build -t sextant .
#   docker build --target gpu -t sextant:gpu .     with CUDA's libraries, for workers with a GPU
#
# The cache mounts keep the registry and the target folder between builds: a change of one crate
# compiles that crate.

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --locked --release --package sextant \
    && install -D target/release/sextant /out/sextant

# The library that `cargo xtask demo` takes as well: version and checksum are those of
# xtask/src/provision/onnxruntime.rs, and a test compares them.
FROM python:3.12-slim-bookworm AS onnxruntime
ARG ONNXRUNTIME_VERSION=1.31.1
RUN pip download --no-deps --only-binary :all: --dest /wheels "onnxruntime==${ONNXRUNTIME_VERSION}" \
    && python -m zipfile -e /wheels/*.whl /wheels/unpacked \
    && install -D "/wheels/unpacked/onnxruntime/capi/libonnxruntime.so.${ONNXRUNTIME_VERSION}" \
        /out/libonnxruntime.so

# Likewise OpenVINO, of which processors need these five.
FROM python:3.12-slim-bookworm AS openvino
ARG OPENVINO_VERSION=2026.4.1
RUN pip download --no-deps --only-binary :all: --dest /wheels "openvino==${OPENVINO_VERSION}" \
    && python -m zipfile -e /wheels/*.whl /wheels/unpacked \
    && mkdir -p /out \
    && cd /wheels/unpacked/openvino/libs \
    && cp libopenvino_c.so.* libopenvino.so.* libopenvino_onnx_frontend.so.* libopenvino_*_cpu_plugin.so libtbb.so.12 /out \
    && ln -s libopenvino_c.so.* /out/libopenvino_c.so

# What the engine `cuda` loads when it starts (docs/gpu.md): together over a gigabyte. The driver is the
# machine's; the NVIDIA container runtime brings it in. The compiler's version is that of
# xtask/src/provision/nvrtc.rs, and a test compares them.
FROM python:3.12-slim-bookworm AS cuda
ARG NVRTC_VERSION=12.8.93
ARG CUBLAS_VERSION=12.8.4.1
ARG CUDNN_VERSION=9.10.2.21
RUN pip install --no-cache-dir --no-deps --only-binary :all: --target /out \
    "nvidia-cuda-nvrtc-cu12==${NVRTC_VERSION}" \
    "nvidia-cublas-cu12==${CUBLAS_VERSION}" \
    "nvidia-cudnn-cu12==${CUDNN_VERSION}"

FROM debian:bookworm-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libgomp1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /var/lib/sextant sextant
COPY --from=onnxruntime /out/libonnxruntime.so /usr/local/lib/libonnxruntime.so
COPY --from=openvino /out /usr/local/lib/openvino
COPY --from=build /out/sextant /usr/local/bin/sextant
ENV ORT_DYLIB_PATH=/usr/local/lib/libonnxruntime.so \
    SEXTANT_OPENVINO_LIBRARY=/usr/local/lib/openvino/libopenvino_c.so \
    SEXTANT_DATA_DIR=/var/lib/sextant \
    SEXTANT_LOG__FORMAT=json
USER 10001:10001
# No VOLUME: it would leave the cache of models behind for each container that goes. Mount one here where
# something is to stay: with everything in one process, or under the role `variant-gen`.
WORKDIR /var/lib/sextant
EXPOSE 8080 7070
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["sextant", "health"]
ENTRYPOINT ["sextant"]
CMD ["serve"]

FROM base AS gpu
COPY --from=cuda /out/nvidia /usr/local/lib/nvidia
ENV SEXTANT_CUDA_LIBRARIES=/usr/local/lib/nvidia \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# What is built where no target is named.
FROM base AS cpu
