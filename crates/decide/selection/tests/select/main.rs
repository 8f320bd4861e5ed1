//! Which variant answers a query.

mod branches;
mod columns;
mod composites;
mod misses;
mod order;
mod preferred;
