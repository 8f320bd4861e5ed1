//! Files of records over a real store: what NumPy wrote, what chance makes, what is damaged.

mod away;
mod long;
#[cfg(feature = "parquet")]
mod parquet;
mod reading;
mod shapes;
mod support;
mod writing;
