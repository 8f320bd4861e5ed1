//! The storage over real stores.

#[path = "storage/backup.rs"]
mod backup;
#[path = "storage/blobs.rs"]
mod blobs;
#[path = "storage/flat.rs"]
mod flat;
#[path = "storage/identity.rs"]
mod identity;
#[path = "storage/jobs.rs"]
mod jobs;
#[path = "storage/race.rs"]
mod race;
#[path = "storage/service.rs"]
mod service;
#[path = "storage/support.rs"]
mod support;
#[path = "storage/usage.rs"]
mod usage;
