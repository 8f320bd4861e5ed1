-- Names that a model's inputs and outputs have in place of those in its file, as declared, by the names in the file; null
-- for none.

alter table models add column names text;
