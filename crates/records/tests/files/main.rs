//! Files of records over a real store: what NumPy wrote, what chance makes, what is damaged.

mod away;
mod reading;
mod support;
mod writing;
