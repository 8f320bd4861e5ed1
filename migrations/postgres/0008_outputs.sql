-- Which outputs of a model are served, where its owner chose; the first is the one that is scored.

alter table models add column outputs json;

-- Files beside a model's file, in which its tensors keep their data: names, digests and sizes.

alter table models add column data json;
