//! The store on a real Redis or Valkey.

mod conformance;
mod faults;
mod feed;
mod fixtures;
mod use_cases;
