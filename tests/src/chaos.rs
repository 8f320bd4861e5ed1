//! A campaign of faults against the whole service, each run drawn from a seed.
//!
//! Entry points: [`Plan::draw`] makes a setting, a load and a schedule of faults of a seed; [`run`]
//! carries it out against real processes and stores and keeps a history; [`check`](check::check)
//! says what in a history must not be.
//!
//! **Invariant:** plans and checks are pure: the same seed gives the same plan, and a history says
//! by itself whether it is right.

pub mod check;
pub mod command;
pub mod history;
pub mod plan;
mod run;
pub mod worth;

pub use check::Violation;
pub use plan::Plan;
pub use run::{Outcome, run};
