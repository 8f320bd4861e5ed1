-- Whether a model's validation set was declared to have no labels: `none`, or null where it has some, or where an
-- earlier version registered the model.

alter table models add column labels text;
