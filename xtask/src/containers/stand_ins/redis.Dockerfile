# Stands in for `redis:..-bookworm`: Debian's Redis, which answers other containers as the image does.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o redis -g redis /data
USER redis
WORKDIR /data
VOLUME /data
EXPOSE 6379
ENTRYPOINT ["sh", "-c", "exec \"$@\" --protected-mode no", "--"]
CMD ["redis-server"]
