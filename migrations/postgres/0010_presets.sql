-- Targets by name that an application's queries may ask for, a document; null where there are none.

alter table applications add column presets json;

-- Requests that are carried out once however often they are sent: whose key it is, what was asked for, and the job
-- that it came to. Times are milliseconds since the Unix epoch.

create table once (
    caller text collate "C" not null,
    name text collate "C" not null,
    fingerprint text not null,
    job text not null,
    created_ms bigint not null,
    primary key (caller, name)
);
