//! The guard before every route: who asks, may they, and what is kept of it. What an operation needs is said in one table
//! (`rules`), which a test compares with the described routes.

mod guard;
mod repeated;
mod rules;

pub(crate) use guard::{Guard, guard, identify};
pub(crate) use rules::{RuleBook, describe, described};
pub(crate) use sextant_api_core::auth::{Actor, AuditMark, Caller, HEADERS, Secret, Subject};
pub use sextant_api_core::auth::{AdminKey, Config, Mode, Unprotected, WeakKey, check};
