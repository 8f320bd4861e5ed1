# Stands in for `versity/versitygw`: the S3 server of the tests.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
COPY s3s-fs /usr/local/bin/s3s-fs
COPY versitygw.sh /usr/local/bin/versitygw
COPY wget.sh /usr/local/bin/wget
EXPOSE 7070
ENTRYPOINT ["versitygw"]
