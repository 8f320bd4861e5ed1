-- The same tables as for SQLite, in PostgreSQL's dialect: change both together.
-- Times are milliseconds since the Unix epoch; JSON columns hold the service's own documents, kept as
-- they were written: `jsonb` would rewrite numbers and refuse some texts. Names are sorted byte by byte.

create table applications (
    id text collate "C" not null primary key,
    metric text not null,
    description text not null,
    default_targets json not null,
    -- Fixed by the first model; null until then.
    signature json
);

create table models (
    id text collate "C" not null primary key,
    application text collate "C" not null references applications (id),
    digest text not null,
    validation text not null,
    size_bytes bigint not null,
    status text not null check (status in ('registering', 'ready', 'failed')),
    error_code text,
    error_message text,
    created_ms bigint not null
);

create index models_application on models (application);

create table variants (
    id text collate "C" not null primary key,
    model text collate "C" not null references models (id) on delete cascade,
    application text collate "C" not null references applications (id),
    document json not null
);

create index variants_model on variants (model);

-- Results of registration steps: a restarted registration goes on behind the last one.
create table steps (
    model text collate "C" not null references models (id) on delete cascade,
    name text collate "C" not null,
    result json not null,
    primary key (model, name)
);

-- Jobs outlive the models and applications they name.
create table jobs (
    id text collate "C" not null primary key,
    kind text not null check (kind in ('register', 'offline')),
    application text collate "C" not null,
    model text collate "C",
    spec json not null,
    state text not null
        check (state in ('queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled')),
    step text not null,
    progress_done bigint not null,
    progress_total bigint not null,
    error_code text,
    error_message text,
    attempts bigint not null,
    owner text,
    lease_until_ms bigint not null,
    created_ms bigint not null,
    updated_ms bigint not null,
    result json
);

create index jobs_queue on jobs (kind, state, created_ms, id);

create index jobs_created on jobs (created_ms, id);

create index jobs_model on jobs (model);
