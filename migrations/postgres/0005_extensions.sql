-- A third kind of job: the variants of a ready model for one more engine, which is taken only by processes
-- that have it. A process of the version before takes no jobs of a kind that it does not know.

alter table jobs drop constraint jobs_kind_check;

alter table jobs add constraint jobs_kind_check check (kind in ('register', 'offline', 'extend'));

alter table jobs add column engine text;

create index jobs_engine on jobs (model, engine);
