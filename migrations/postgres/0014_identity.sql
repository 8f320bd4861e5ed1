-- The same table as for SQLite, in the dialect of PostgreSQL: change both together.
-- The name that the registry has in common with its artefact store: one row at most.

create table identity (
    place bigint not null primary key check (place = 1),
    id text not null
);
