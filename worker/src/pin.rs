//! Threads that keep to a core.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Whether this process may run on all of `cores`; the error names the first that it may not.
pub(crate) fn check(cores: &[usize]) -> io::Result<()> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    if cores.is_empty() {
        return Err(invalid("the list of cores to keep to is empty".to_owned()));
    }
    let own = sched_getaffinity(None)?;
    match cores
        .iter()
        .find(|core| **core >= CpuSet::MAX_CPU || !own.is_set(**core))
    {
        Some(core) => Err(invalid(format!(
            "this process may not run on core `{core}`"
        ))),
        None => Ok(()),
    }
}

/// Keeps the calling thread, the `number`th of its kind, to one of `cores`.
pub(crate) fn this_thread(cores: &[usize], number: usize) {
    let mut set = CpuSet::new();
    // Checked at the start of the worker: neither empty nor out of range.
    set.set(cores[number % cores.len()]);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(%error, "a thread cannot be kept to its core");
    }
}
