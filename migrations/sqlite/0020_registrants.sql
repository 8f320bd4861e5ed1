-- Who registered a model, as the audit record names them; null: an earlier version of the service, which did not note it.

alter table models add column registered_by text;

-- 0: with a key that is no administrator's. 1: with an administrator's, or where keys are not asked for. Null as above.

alter table models add column registered_by_admin integer;
