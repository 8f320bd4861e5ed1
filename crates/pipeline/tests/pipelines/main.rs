//! Pipelines from definition to answer, over a dispatcher that computes by a rule.

mod checked;
mod dropping;
mod memory;
mod nested;
mod offline;
mod ragged;
mod run;
mod split;
mod whole;
mod worker;
