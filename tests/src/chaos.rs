//! A campaign of faults against the whole service, each run drawn from a seed.
//!
//! Entry points: [`Plan::draw`] draws a setting, a load and a schedule of faults from a seed.
//! [`run`] carries the plan out with real processes and stores, and records a history.
//! [`check`](check::check) lists what is wrong in a history.
//!
//! **Invariant:** plans and checks are pure: the same seed gives the same plan, and a history
//! contains everything that its check needs.

pub mod check;
pub mod command;
pub mod history;
pub mod plan;
mod run;
pub mod worth;

pub use check::Violation;
pub use plan::Plan;
pub use run::{Outcome, run};
