//! Pipelines from their definition to the answer, over a dispatcher that computes by a rule.

mod checked;
mod dropping;
mod run;
mod whole;
mod worker;
