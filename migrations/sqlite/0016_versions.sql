-- Versions: the models of one name in an application. A model without a name was registered by an earlier version of
-- the service: its name is its id, its number 1, and it is current.

alter table models add column name text;

-- From 1.
alter table models add column version integer;

-- `candidate`, `shadow`, `canary`, `current` or `retired`; null: current.
alter table models add column stage text;

-- The share of queries that a shadow or a canary gets, percent.
alter table models add column percent real;

-- The rules by which a shadow or a canary is promoted or rolled back by itself; null: by nobody.
alter table models add column rules text;

-- When the model came to its stage.
alter table models add column stage_since_ms integer;

-- The number of the version in whose place the model became current.
alter table models add column replaced integer;

create unique index models_version on models (application, name, version);
