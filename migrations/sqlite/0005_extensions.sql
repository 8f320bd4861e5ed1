-- A third kind of job: the variants of a ready model for one more engine, which is taken only by processes
-- that have it. SQLite changes no constraint, so the table is written again.

create table jobs_next (
    id text not null primary key,
    kind text not null check (kind in ('register', 'offline', 'extend')),
    application text not null,
    model text,
    spec text not null,
    state text not null
        check (state in ('queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled')),
    step text not null,
    progress_done integer not null,
    progress_total integer not null,
    error_code text,
    error_message text,
    attempts integer not null,
    owner text,
    lease_until_ms integer not null,
    created_ms integer not null,
    updated_ms integer not null,
    result text,
    engine text
) strict;

insert into jobs_next (id, kind, application, model, spec, state, step, progress_done, progress_total,
    error_code, error_message, attempts, owner, lease_until_ms, created_ms, updated_ms, result)
select id, kind, application, model, spec, state, step, progress_done, progress_total,
    error_code, error_message, attempts, owner, lease_until_ms, created_ms, updated_ms, result
from jobs;

drop table jobs;

alter table jobs_next rename to jobs;

create index jobs_queue on jobs (kind, state, created_ms, id);

create index jobs_created on jobs (created_ms, id);

create index jobs_model on jobs (model);

create index jobs_engine on jobs (model, engine);
