-- Inputs of a model that are the same in every query, and their values, as its owner declared them.

alter table models add column constants text;
