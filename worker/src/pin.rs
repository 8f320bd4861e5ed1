//! Threads that keep to a core and wake when they want to.

use std::{
    io,
    num::NonZeroU64,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// The cores that the threads of a worker that run batches keep to, which may change.
pub(crate) struct Pins {
    /// One after the other; `None` leaves them to the operating system.
    cores: RwLock<Option<Arc<[usize]>>>,
    /// Another number with each change.
    revision: AtomicU64,
}

/// Where one of these threads keeps to.
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

/// Lets the calling thread's waits end when they are due: otherwise the operating system may put
/// their ends together with others, by default within 50 microseconds.
pub(crate) fn wake_exactly() {
    if let Err(error) = set_current_timer_slack(Some(NonZeroU64::MIN)) {
        tracing::debug!(%error, "waits end up to 50 microseconds late");
    }
}

// === impl Pins ===

impl Pins {
    /// `cores` have been checked: neither empty nor out of range.
    pub(crate) fn new(cores: Option<&[usize]>) -> Self {
        Self {
            cores: RwLock::new(cores.map(Arc::from)),
            revision: AtomicU64::new(1),
        }
    }

    /// The cores that are kept to; empty where the operating system chooses.
    pub(crate) fn now(&self) -> Vec<usize> {
        let cores = self.cores.read().unwrap_or_else(PoisonError::into_inner);
        cores.as_ref().map_or_else(Vec::new, |cores| cores.to_vec())
    }

    /// Each thread keeps to its core of these from its next batch on.
    pub(crate) fn change(&self, cores: &[usize]) {
        let mut now = self.cores.write().unwrap_or_else(PoisonError::into_inner);
        *now = Some(Arc::from(cores));
        self.revision.fetch_add(1, Ordering::Release);
    }
}

// === impl ThreadPin ===

impl ThreadPin {
    /// For the `number`th thread of its kind, which keeps to nothing so far.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            revision: 0,
        }
    }

    /// Keeps the calling thread to its core, if it does not already.
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
