//! The guard before every route: it identifies the caller, checks what the caller may do, and keeps the audit record.
//! One table (`rules`) says what each operation needs; a test compares it with the described routes.

mod guard;
mod repeated;
mod rules;

pub(crate) use guard::{Guard, guard, identify};
pub(crate) use rules::{RuleBook, describe, described};
pub(crate) use sextant_api_core::auth::{Actor, AuditMark, Caller, HEADERS, Secret, Subject};
pub use sextant_api_core::auth::{AdminKey, Config, Mode, Unprotected, WeakKey, check};
