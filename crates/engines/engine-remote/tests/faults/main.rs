//! Servers that lie, break off, flood or say nothing, and what cannot be loaded at all.

#[path = "../support/load.rs"]
mod load;

mod hostile;
mod lies;
mod refusals;
mod script;
