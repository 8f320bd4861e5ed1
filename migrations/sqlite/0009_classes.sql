-- The names of a model's classes, where its owner gave them.

alter table models add column classes text;

-- The output that a model's accuracy is measured on and the names of its columns, as its registration found them.

alter table models add column scored text;
