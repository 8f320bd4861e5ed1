-- The same tables as for SQLite, in the dialect of PostgreSQL: change both together.
-- What users say of answers. What an application takes of it; null takes none.

alter table applications add column feedback json;

-- The keys that the tokens of answers are signed with.
create table feedback_keys (
    number bigint not null primary key,
    -- 64 hexadecimal digits.
    secret text not null,
    created_ms bigint not null,
    -- From when on tokens are signed with it: by then every front end has read it.
    from_ms bigint not null
);

create table feedback (
    query text collate "C" not null,
    place bigint not null,
    kind text collate "C" not null check (kind in ('label', 'reward', 'preference')),
    application text collate "C" not null references applications (id) on delete cascade,
    model text collate "C" not null,
    -- 0 where models have none.
    version bigint not null,
    variant text collate "C" not null,
    answered_ms bigint not null,
    given_ms bigint not null,
    -- A document, as text.
    value text not null,
    -- Null where it could not be scored.
    score double precision,
    propensity double precision not null,
    -- Whom it is about, as the client calls them.
    subject text collate "C",
    actor text collate "C" not null,
    bytes bigint not null,
    -- Which insertion the row came with.
    body text collate "C" not null,
    primary key (query, place, kind)
);

create index feedback_by_time on feedback (application, given_ms, bytes);
create index feedback_by_subject on feedback (application, subject) where subject is not null;

-- Sums of the scores, by the hour of the answers.
create table feedback_sums (
    application text collate "C" not null references applications (id) on delete cascade,
    model text collate "C" not null,
    version bigint not null,
    variant text collate "C" not null,
    kind text collate "C" not null check (kind in ('label', 'reward', 'preference')),
    -- Hours since the Unix epoch.
    hour bigint not null,
    counted bigint not null,
    total double precision not null,
    squares double precision not null,
    primary key (application, model, version, variant, kind, hour)
);

-- Models that should be trained again.
create table feedback_alarms (
    application text collate "C" not null references applications (id) on delete cascade,
    model text collate "C" not null,
    kind text collate "C" not null check (kind in ('level', 'slope')),
    since_ms bigint not null,
    seen double precision not null,
    bound double precision not null,
    counted bigint not null,
    -- When a front end took it upon itself to tell of it.
    taken_ms bigint not null,
    told_ms bigint,
    primary key (application, model, kind)
);
