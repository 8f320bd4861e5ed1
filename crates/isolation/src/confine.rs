//! The limits of a child.

use std::io;

use rustix::process::{Resource, Rlimit, Signal};

/// Called by the child first: from now on it dies with whoever has started it, leaves no image of its
/// memory behind, takes no more address space than so many bytes, and is the first to go where the machine
/// runs out of memory.
///
/// # Errors
/// When the system refuses a limit.
pub fn confine(memory_bytes: u64) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let most = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    rustix::process::setrlimit(Resource::Core, most(0))?;
    rustix::process::setrlimit(Resource::As, most(memory_bytes))?;
    // A system without it kills whom it likes.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    Ok(())
}
