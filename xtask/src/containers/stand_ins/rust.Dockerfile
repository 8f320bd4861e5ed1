# Stands in for `rust:..-bookworm`: this machine's toolchain without rustup.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ gcc libc6-dev make pkg-config \
    && rm -rf /var/lib/apt/lists/*
ENV CARGO_HOME=/usr/local/cargo PATH=/usr/local/rust/bin:/usr/local/cargo/bin:$PATH
COPY bin /usr/local/rust/bin
COPY lib /usr/local/rust/lib
