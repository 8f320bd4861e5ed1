//! Threads that keep to a core and wake exactly when they are due.

use std::{
    io,
    num::NonZeroU64,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// The cores that a worker's threads that run batches keep to. They may change.
pub(crate) struct Pins {
    /// In the order of the threads; `None` leaves the choice to the operating system.
    cores: RwLock<Option<Arc<[usize]>>>,
    /// Changes with each change of the cores.
    revision: AtomicU64,
}

/// The core that one of these threads keeps to.
pub(crate) struct ThreadPin {
    number: usize,
    revision: u64,
}

/// The cores that this process may run on, in order.
pub(crate) fn permitted() -> io::Result<Vec<usize>> {
    let own = sched_getaffinity(None)?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|core| own.is_set(*core)).collect())
}

/// Checks that this process may run on all of `cores`. The error names the first core that it may
/// not use.
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

/// Lets the calling thread's waits end exactly when they are due. By default the operating system
/// may delay them by up to 50 microseconds to end several together.
pub(crate) fn wake_exactly() {
    if let Err(error) = set_current_timer_slack(Some(NonZeroU64::MIN)) {
        tracing::debug!(%error, "waits end up to 50 microseconds late");
    }
}

// === impl Pins ===

impl Pins {
    /// `cores` must have been checked: not empty and in range.
    pub(crate) fn new(cores: Option<&[usize]>) -> Self {
        Self {
            cores: RwLock::new(cores.map(Arc::from)),
            revision: AtomicU64::new(1),
        }
    }

    /// The cores that threads keep to; empty if the operating system chooses.
    pub(crate) fn now(&self) -> Vec<usize> {
        let cores = self.cores.read().unwrap_or_else(PoisonError::into_inner);
        cores.as_ref().map_or_else(Vec::new, |cores| cores.to_vec())
    }

    /// Changes the cores. Each thread keeps to its new core from its next batch on.
    pub(crate) fn change(&self, cores: &[usize]) {
        let mut now = self.cores.write().unwrap_or_else(PoisonError::into_inner);
        *now = Some(Arc::from(cores));
        self.revision.fetch_add(1, Ordering::Release);
    }
}

// === impl ThreadPin ===

impl ThreadPin {
    /// For the `number`th thread of its kind, which keeps to no core so far.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            revision: 0,
        }
    }

    /// Makes the calling thread keep to its core, unless it already does.
    pub(crate) fn apply(&mut self, pins: &Pins) {
        let revision = pins.revision.load(Ordering::Acquire);
        if std::mem::replace(&mut self.revision, revision) == revision {
            return;
        }
        let cores = pins.cores.read().unwrap_or_else(PoisonError::into_inner);
        let Some(cores) = cores.as_deref().filter(|cores| !cores.is_empty()) else {
            return;
        };
        let mut set = CpuSet::new();
        set.set(cores[self.number % cores.len()]);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(%error, "a thread cannot be kept to its core");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::{Pins, ThreadPin};

    fn own() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("the cores of this thread");
        let all = 0..CpuSet::MAX_CPU;
        all.filter(|core| set.is_set(*core)).collect()
    }

    #[test]
    fn a_thread_keeps_to_its_core_of_those_that_were_named_last() {
        let all = own();
        let pins = Pins::new(None);
        let mut thread = ThreadPin::new(3);
        thread.apply(&pins);
        assert_eq!((own(), pins.now()), (all.clone(), vec![]));
        for cores in [&all[..1], &all[all.len() - 1..], &all[..]] {
            pins.change(cores);
            thread.apply(&pins);
            assert_eq!(own(), [cores[3 % cores.len()]]);
            assert_eq!(pins.now(), cores);
        }
    }
}
