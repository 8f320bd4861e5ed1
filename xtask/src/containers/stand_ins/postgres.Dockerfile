# Stands in for `postgres:..-bookworm`: Debian's PostgreSQL.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/postgresql/* /usr/lib/postgresql/current \
    && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data
# As in the image, so that a file system in memory at this place may be written to, too.
RUN chmod 3777 /var/run/postgresql
COPY postgres.sh /usr/local/bin/postgres.sh
ENV PATH=/usr/lib/postgresql/current/bin:$PATH PGDATA=/var/lib/postgresql/data
USER postgres
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["postgres.sh"]
