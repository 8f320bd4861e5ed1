-- How a model's inputs may be padded, so that queries of different lengths share a batch.

alter table models add column padding text;
