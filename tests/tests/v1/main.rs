//! `/v1`: Sextant's own interface, one module for each collection.

mod applications;
mod artefacts;
mod budgets;
mod cache;
mod composites;
mod costs;
mod exports;
mod feedback;
mod formats;
mod full;
mod hardware;
mod harmful;
mod hostile;
mod isolation;
mod jobs;
mod large;
mod memory;
mod models;
mod pipelines;
mod python;
mod queries;
mod registrations;
mod sizes;
mod storage;
mod versions;
mod workers;
