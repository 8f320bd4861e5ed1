//! Variables that libraries read once, when the process starts or they are loaded. A process cannot safely change its
//! own environment, so that it starts itself again with them, unless the user has set them.
//!
//! **Freed memory** is used again, or given back to the system. Registration measures many sessions on several
//! threads, one after the other, and glibc gives each thread an arena that keeps what the thread freed: after the
//! demo's four models the process held 180 to 200 MB where 60 MB were in use. Few arenas, shared by all threads, keep
//! far less and cost nothing that the benchmarks show, because small blocks come from each thread's own cache.
//! (Fixed thresholds for handing blocks back keep still less, and cost ResNet-18 a tenth of its throughput.)
//!
//! **Nothing reports to anybody.** ONNX Runtime's library for Linux (1.31) opens a database of usage, to be sent to its
//! maker, as soon as it is loaded and before its interface can be told not to.

use std::{env, io, os::unix::process::CommandExt, process::Command, thread};

/// The variable that glibc reads (mallopt(3)).
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Cores that share an arena on large machines; small ones have two arenas.
const CORES_PER_ARENA: usize = 4;

/// The variable that ONNX Runtime reads.
const NO_REPORTS: &str = "ORT_DISABLE_TELEMETRY";

/// Replaces this process by itself with the variables that are missing. Returns when all are there already, or when it
/// cannot be done. Call it before any thread starts.
pub(crate) fn complete() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let arenas = (cores / CORES_PER_ARENA).max(2).to_string();
    let wanted = [(ARENAS, arenas.as_str()), (NO_REPORTS, "1")];
    let missing = wanted
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none())
        .collect::<Vec<_>>();
    if missing.is_empty() {
        return;
    }
    if let Err(error) = restart(&missing) {
        tracing::warn!(%error, "freed memory stays with the process, and ONNX Runtime keeps a database of usage");
    }
}

fn restart(variables: &[(&str, &str)]) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .envs(variables.iter().copied());
    Err(command.exec())
}
