# Stands in for `minio/minio` and `minio/mc`: the S3 server of the tests, and of the client what is used.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
COPY s3s-fs /usr/local/bin/s3s-fs
COPY minio.sh /usr/local/bin/minio
COPY mc.sh /usr/local/bin/mc
VOLUME /data
EXPOSE 9000
ENTRYPOINT ["minio"]
