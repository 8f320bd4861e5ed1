-- Targets by name that an application's queries may ask for, a document; null where there are none.

alter table applications add column presets text;

-- Requests that are carried out once however often they are sent: whose key it is, what was asked for, and the job
-- that it came to. Times are milliseconds since the Unix epoch.

create table once (
    caller text not null,
    name text not null,
    fingerprint text not null,
    job text not null,
    created_ms integer not null,
    primary key (caller, name)
) strict;
