-- How right pipelines are as a whole, and a fourth kind of job, which measures it. A process of the version before takes
-- no jobs of a kind that it does not know.

create table pipeline_measures (
    application text collate "C" not null primary key references applications (id) on delete cascade,
    -- The version of the definition that was measured.
    version bigint not null,
    -- What its steps followed: models and their versions.
    followed text not null,
    -- A document.
    figures json not null,
    measured_ms bigint not null
);

alter table jobs drop constraint jobs_kind_check;

alter table jobs add constraint jobs_kind_check check (kind in ('register', 'offline', 'extend', 'measure'));
