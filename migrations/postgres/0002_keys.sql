-- The same tables as for SQLite, in the dialect of PostgreSQL: change both together.
-- API keys, the record of what was done with them, and counters that say when something changed.
-- Times are milliseconds since the Unix epoch.

create table api_keys (
    id text collate "C" not null primary key,
    name text collate "C" not null,
    -- Of the secret, which is stored nowhere.
    hash text not null unique,
    -- Names of scopes, separated by spaces.
    scopes text not null,
    -- The one application the key is good for; null: all of them.
    application text collate "C",
    rate_per_s double precision,
    burst bigint,
    quota_per_day bigint,
    created_ms bigint not null,
    expires_ms bigint,
    revoked_ms bigint
);

create index api_keys_created on api_keys (created_ms, id);

create table audit (
    id text collate "C" not null primary key,
    at_ms bigint not null,
    actor text not null,
    action text not null,
    subject text not null,
    detail json not null
);

create index audit_at on audit (at_ms, id);

-- How often a set of rows changed: cheap to ask, and followed by whoever holds a copy of it.
create table revisions (
    name text collate "C" not null primary key,
    revision bigint not null
);
