# syntax=docker/dockerfile:1.7
# Builds the one binary and puts it, with the pinned ONNX Runtime library, into a small image.
#
#   docker build -t sextant .
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

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libgomp1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /var/lib/sextant sextant
COPY --from=onnxruntime /out/libonnxruntime.so /usr/local/lib/libonnxruntime.so
COPY --from=build /out/sextant /usr/local/bin/sextant
ENV ORT_DYLIB_PATH=/usr/local/lib/libonnxruntime.so \
    SEXTANT_DATA_DIR=/var/lib/sextant \
    SEXTANT_LOG__FORMAT=json
USER 10001:10001
WORKDIR /var/lib/sextant
VOLUME /var/lib/sextant
EXPOSE 8080 7070
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["sextant", "health"]
ENTRYPOINT ["sextant"]
CMD ["serve"]
