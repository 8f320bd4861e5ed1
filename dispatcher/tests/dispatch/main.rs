//! The dispatcher over a real worker, store and registry; only the arithmetic is made up.

mod jobs;
mod queries;
mod world;
