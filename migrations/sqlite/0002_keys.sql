-- API keys, the record of what was done with them, and counters that say when something changed.
-- Times are milliseconds since the Unix epoch.

create table api_keys (
    id text not null primary key,
    name text not null,
    -- Of the secret, which is stored nowhere.
    hash text not null unique,
    -- Names of scopes, separated by spaces.
    scopes text not null,
    -- The one application the key is good for; null: all of them.
    application text,
    rate_per_s real,
    burst integer,
    quota_per_day integer,
    created_ms integer not null,
    expires_ms integer,
    revoked_ms integer
) strict;

create index api_keys_created on api_keys (created_ms, id);

create table audit (
    id text not null primary key,
    at_ms integer not null,
    actor text not null,
    action text not null,
    subject text not null,
    detail text not null
) strict;

create index audit_at on audit (at_ms, id);

-- How often a set of rows changed: cheap to ask, and followed by whoever holds a copy of it.
create table revisions (
    name text not null primary key,
    revision integer not null
) strict;
