//! A front end, dispatchers and mailboxes, with a link between each two.

mod chaos;
mod fleet;
mod follow;
mod inline;
mod kept;
mod mailbox;
mod placer;
mod queries;
