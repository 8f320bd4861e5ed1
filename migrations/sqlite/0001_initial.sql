-- Times are milliseconds since the Unix epoch; JSON columns hold the service's own documents.

create table applications (
    id text not null primary key,
    metric text not null,
    description text not null,
    default_targets text not null,
    -- Fixed by the first model; null until then.
    signature text
) strict;

create table models (
    id text not null primary key,
    application text not null references applications (id),
    digest text not null,
    validation text not null,
    size_bytes integer not null,
    status text not null check (status in ('registering', 'ready', 'failed')),
    error_code text,
    error_message text,
    created_ms integer not null
) strict;

create index models_application on models (application);

create table variants (
    id text not null primary key,
    model text not null references models (id) on delete cascade,
    application text not null references applications (id),
    document text not null
) strict;

create index variants_model on variants (model);

-- Results of registration steps: a restarted registration goes on behind the last one.
create table steps (
    model text not null references models (id) on delete cascade,
    name text not null,
    result text not null,
    primary key (model, name)
) strict;

-- Jobs outlive the models and applications they name.
create table jobs (
    id text not null primary key,
    kind text not null check (kind in ('register', 'offline')),
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
    result text
) strict;

create index jobs_queue on jobs (kind, state, created_ms, id);

create index jobs_created on jobs (created_ms, id);

create index jobs_model on jobs (model);
