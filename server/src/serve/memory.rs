//! Has freed memory used again, or given back to the system.
//!
//! Registration measures many sessions on several threads, one after the other, and glibc gives each
//! thread an arena that keeps what the thread freed: after the demo's four models the process held
//! 180 to 200 MB where 60 MB were in use. Few arenas, shared by all threads, keep far less and
//! cost nothing that the benchmarks show, because small blocks come from each thread's own cache.
//! (Fixed thresholds for handing blocks back keep still less, and cost ResNet-18 a tenth of its
//! throughput.) The allocator reads its settings from the environment, once, when a process starts;
//! so the service starts itself again with the setting, unless the user has chosen one.

use std::{env, io, os::unix::process::CommandExt, process::Command, thread};

/// The variable that glibc reads (mallopt(3)).
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Cores that share an arena on large machines; small ones have two arenas.
const CORES_PER_ARENA: usize = 4;

/// Replaces this process by itself with the setting. Returns when it is there already, or when it
/// cannot be done, which costs memory and nothing else. Call it before any thread starts.
pub(crate) fn limit_arenas() {
    if cfg!(not(target_env = "gnu")) || env::var_os(ARENAS).is_some() {
        return;
    }
    if let Err(error) = restart() {
        tracing::warn!(%error, "freed memory stays with the process");
    }
}

fn restart() -> io::Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let arenas = (cores / CORES_PER_ARENA).max(2);
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .env(ARENAS, arenas.to_string());
    Err(command.exec())
}
