//! Threads that keep to a core and wake when they want to.

use std::{io, num::NonZeroU64};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

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

/// Lets the calling thread's waits end when they are due: otherwise the operating system may put
/// their ends together with others, by default within 50 microseconds.
pub(crate) fn wake_exactly() {
    if let Err(error) = set_current_timer_slack(Some(NonZeroU64::MIN)) {
        tracing::debug!(%error, "waits end up to 50 microseconds late");
    }
}
