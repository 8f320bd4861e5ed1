//! Has freed memory given back to the system.
//!
//! Registration measures many sessions, one after the other. glibc keeps what they free: after the
//! demo's four models the process held over 180 MB where 60 MB were in use. Its allocator reads its
//! settings from the environment, once, when a process starts; so the service starts itself again
//! with fixed thresholds, unless the user has chosen some.

use std::{env, io, os::unix::process::CommandExt, process::Command};

/// Blocks from this size on are handed back as soon as they are freed, and the top of the heap when
/// so much of it is free, bytes. Below it the allocator's own caches are faster.
const THRESHOLD: &str = "1048576";

/// The variables that glibc reads (mallopt(3)).
const VARIABLES: [&str; 2] = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];

/// Replaces this process by itself with the thresholds set. Returns when they are set already, or
/// when it cannot be done, which costs memory and nothing else. Call it before any thread starts.
pub(crate) fn settle() {
    if cfg!(not(target_env = "gnu")) || VARIABLES.iter().any(|name| env::var_os(name).is_some()) {
        return;
    }
    if let Err(error) = restart() {
        tracing::warn!(%error, "freed memory stays with the process");
    }
}

fn restart() -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .envs(VARIABLES.map(|name| (name, THRESHOLD)));
    Err(command.exec())
}
