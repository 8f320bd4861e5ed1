# What `cargo xtask bare` begins with: Debian, Python 3, the linker that Rust asks for, and certificates, without which
# nobody got the toolchain.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/log/apt/history.log \
    && rm -f /etc/apt/apt.conf.d/docker-clean
ENV PATH=/usr/local/rust/bin:$PATH
