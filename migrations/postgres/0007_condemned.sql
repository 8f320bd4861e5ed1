-- Blobs of the artefact store that are about to be removed, because nothing refers to them. While a row is
-- there, nothing can refer to the blob. Times are milliseconds since the Unix epoch.

create table condemned (
    digest text collate "C" not null primary key,
    since_ms bigint not null
);
