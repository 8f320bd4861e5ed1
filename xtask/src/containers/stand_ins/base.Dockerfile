# Stands in for `debian:bookworm-slim`: what debootstrap made, and the certificates that this machine
# trusts, so that registries of packages can be reached from where a proxy answers for them.
FROM sextant-stand-in:debootstrap
COPY ca-certificates.crt /usr/local/share/machine/ca-certificates.crt
ENV SSL_CERT_FILE=/usr/local/share/machine/ca-certificates.crt \
    CARGO_HTTP_CAINFO=/usr/local/share/machine/ca-certificates.crt \
    PIP_CERT=/usr/local/share/machine/ca-certificates.crt
