-- What users say of answers. What an application takes of it; null takes none.

alter table applications add column feedback text;

-- The keys that the tokens of answers are signed with.
create table feedback_keys (
    number integer not null primary key,
    -- 64 hexadecimal digits.
    secret text not null,
    created_ms integer not null,
    -- From when on tokens are signed with it: by then every front end has read it.
    from_ms integer not null
) strict;

create table feedback (
    query text not null,
    place integer not null,
    kind text not null check (kind in ('label', 'reward', 'preference')),
    application text not null references applications (id) on delete cascade,
    model text not null,
    -- 0 where models have none.
    version integer not null,
    variant text not null,
    answered_ms integer not null,
    given_ms integer not null,
    -- A document, as text.
    value text not null,
    -- Null where it could not be scored.
    score real,
    propensity real not null,
    -- Whom it is about, as the client calls them.
    subject text,
    actor text not null,
    bytes integer not null,
    -- Which insertion the row came with.
    body text not null,
    primary key (query, place, kind)
) strict;

create index feedback_by_time on feedback (application, given_ms, bytes);
create index feedback_by_subject on feedback (application, subject) where subject is not null;

-- Sums of the scores, by the hour of the answers.
create table feedback_sums (
    application text not null references applications (id) on delete cascade,
    model text not null,
    version integer not null,
    variant text not null,
    kind text not null check (kind in ('label', 'reward', 'preference')),
    -- Hours since the Unix epoch.
    hour integer not null,
    counted integer not null,
    total real not null,
    squares real not null,
    primary key (application, model, version, variant, kind, hour)
) strict;

-- Models that should be trained again.
create table feedback_alarms (
    application text not null references applications (id) on delete cascade,
    model text not null,
    kind text not null check (kind in ('level', 'slope')),
    since_ms integer not null,
    seen real not null,
    bound real not null,
    counted integer not null,
    -- When a front end took it upon itself to tell of it.
    taken_ms integer not null,
    told_ms integer,
    primary key (application, model, kind)
) strict;
