-- The same tables as for SQLite, in the dialect of PostgreSQL: change both together.
-- Applications that several steps answer: every version of their definitions. The latest one answers.

create table pipelines (
    application text collate "C" not null references applications (id) on delete cascade,
    -- From 1.
    version bigint not null,
    -- As it was written.
    definition json not null,
    -- The files that its steps need: digests by paths.
    files json not null,
    created_ms bigint not null,
    primary key (application, version)
);
