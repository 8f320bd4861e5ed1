-- The same tables as for SQLite, in the dialect of PostgreSQL: change both together.
-- What was measured of a variant on types of devices other than the one that registered it, and how
-- often that was tried in vain. Times are milliseconds since the Unix epoch.

create table profiles (
    variant text collate "C" not null references variants (id) on delete cascade,
    device_type text collate "C" not null,
    -- Null until it was measured.
    document json,
    -- Since the last success.
    failures bigint not null,
    -- Of the last failure; null after a success.
    error_code text,
    error_message text,
    updated_ms bigint not null,
    primary key (variant, device_type)
);
