-- Applications that several steps answer: every version of their definitions. The latest one answers.

create table pipelines (
    application text not null references applications (id) on delete cascade,
    -- From 1.
    version integer not null,
    -- As it was written.
    definition text not null,
    -- The files that its steps need: digests by paths.
    files text not null,
    created_ms integer not null,
    primary key (application, version)
) strict;
