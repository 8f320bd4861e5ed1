//! Functions of Python files, called in processes of their own.
//!
//! A step of a pipeline may be a function that a user wrote. It is code, so it runs in a child: the service's own
//! program confines itself ([`Confinement`]) and becomes the configured interpreter, which runs `harness.py`. The child
//! has a socket to its parent, and nothing else: no environment, no network, no files but those of the interpreter and
//! its packages, limits of memory, and a time limit for each call.
//!
//! Entry points: [`find`] inspects an interpreter, [`Python`] calls functions with it.
//!
//! **Invariants:** a process serves one file of one pipeline, and one call at a time; its messages are treated as a
//! user's; a call of one query is never repeated.

mod batch;
mod confined;
mod found;
mod message;
mod pool;
mod process;

pub use crate::{
    confined::Confinement,
    found::{Error, PythonInterpreter, find},
    pool::{Python, Settings},
};

/// The script that the interpreter runs.
pub(crate) const HARNESS: &str = include_str!("harness.py");
