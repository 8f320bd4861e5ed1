-- What an application may use of a fleet, a document; null where nothing was set.

alter table applications add column resources json;
