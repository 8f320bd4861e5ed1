-- Which outputs of a model are served, where its owner chose; the first is the one that is scored.

alter table models add column outputs text;
