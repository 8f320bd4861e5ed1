-- The name that the registry has in common with its artefact store: one row at most.

create table identity (
    place integer not null primary key check (place = 1),
    id text not null
) strict;
