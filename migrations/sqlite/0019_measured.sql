-- How right pipelines are as a whole, and a fourth kind of job, which measures it. SQLite changes no constraint, so the
-- table of jobs is written again.

create table pipeline_measures (
    application text not null primary key references applications (id) on delete cascade,
    -- The version of the definition that was measured.
    version integer not null,
    -- What its steps followed: models and their versions.
    followed text not null,
    -- A document.
    figures text not null,
    measured_ms integer not null
) strict;

create table jobs_next (
    id text not null primary key,
    kind text not null check (kind in ('register', 'offline', 'extend', 'measure')),
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
    error_code, error_message, attempts, owner, lease_until_ms, created_ms, updated_ms, result, engine)
select id, kind, application, model, spec, state, step, progress_done, progress_total,
    error_code, error_message, attempts, owner, lease_until_ms, created_ms, updated_ms, result, engine
from jobs;

drop table jobs;

alter table jobs_next rename to jobs;

create index jobs_queue on jobs (kind, state, created_ms, id);

create index jobs_created on jobs (created_ms, id);

create index jobs_model on jobs (model);

create index jobs_engine on jobs (model, engine);
