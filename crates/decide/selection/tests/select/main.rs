//! Which variant answers a query.

mod branches;
mod columns;
mod misses;
mod order;
mod preferred;
