//! Variables that libraries read once, when the process starts or they are loaded. A process cannot safely change its
//! own environment, so that it starts itself again with them, unless the user has set them.
//!
//! **Freed memory** waits ten seconds for its next use before it goes back to the system. Each run of a large batch
//! needs hundreds of megabytes for its intermediate results. Where they go back at once, as with glibc's `malloc`, which
//! maps and unmaps large blocks, the kernel fills all their pages with zeros in each run: a text encoder takes twice as
//! long for a batch of long texts. The allocator of the program, and of the libraries that it loads, is mimalloc.
//!
//! **Nothing reports to anybody.** ONNX Runtime's library for Linux (1.31) opens a database of usage, to be sent to its
//! maker, as soon as it is loaded and before its interface can be told not to.

use std::{env, io, os::unix::process::CommandExt, process::Command};

use sextant_isolation::LIBRARIES;

/// Replaces this process by itself with the variables that are missing. Returns when all are there already, or when it
/// cannot be done. Call it before any thread starts.
pub(crate) fn complete() {
    let missing = LIBRARIES
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none())
        .collect::<Vec<_>>();
    if missing.is_empty() {
        return;
    }
    if let Err(error) = restart(&missing) {
        tracing::warn!(%error, "large batches run more slowly than they could, and ONNX Runtime keeps a database of usage");
    }
}

fn restart(variables: &[(&str, &str)]) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .envs(variables.iter().copied());
    Err(command.exec())
}
