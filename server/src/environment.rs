//! Variables that libraries read once, when the process starts or they are loaded. A process cannot safely change its
//! own environment, so it starts itself again with these variables, unless the user has set them.
//!
//! **Freed memory** waits ten seconds for its next use before it goes back to the system. Each run of a large batch
//! needs hundreds of megabytes for its intermediate results. If they go back at once, as with glibc's `malloc`, which
//! maps and unmaps large blocks, the kernel fills all their pages with zeros in each run: a text encoder takes twice as
//! long for a batch of long texts. The allocator of the program, and of the libraries that it loads, is mimalloc.
//!
//! **No library reports usage.** ONNX Runtime's library for Linux (1.31) opens a database of usage, to be sent to its
//! maker, as soon as it is loaded and before its interface can be told not to.

use std::{env, io, os::unix::process::CommandExt, process::Command};

use sextant_isolation::LIBRARIES;

/// Replaces this process by itself with the variables that are missing. Call it before any thread starts, and before
/// anything is read that can be read but once, such as a configuration from a pipe.
///
/// # Errors
/// When it cannot be done: the process goes on without them.
pub(crate) fn complete() -> io::Result<()> {
    let missing = LIBRARIES
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none())
        .collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).envs(missing);
    Err(command.exec())
}

/// Logs that the variables are missing, where they are.
pub(crate) fn warn(completed: io::Result<()>) {
    if let Err(error) = completed {
        tracing::warn!(%error, "large batches run more slowly than they could, and ONNX Runtime keeps a database of usage");
    }
}
