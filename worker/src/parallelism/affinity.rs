//! Which cores there are and which thread keeps to which.
//!
//! A request on k threads is called from one thread; the engine has the other k - 1. Callers keep to
//! one core each, k apart where requests are k wide. The engine's threads inherit the cores of the
//! thread that makes its session, so sessions are made on threads that keep to the cores in between:
//! a helper is never put beside a caller while the core next to it idles.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may run on, in order.
pub fn cores() -> io::Result<Vec<usize>> {
    let own = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| own.is_set(*core))
        .collect())
}

/// Where the callers of requests on `intra` threads run, out of `cores`.
pub fn caller_cores(cores: &[usize], intra: u16) -> Vec<usize> {
    let slots = cores.len() / usize::from(intra.max(1));
    let first = |slot: usize| cores[slot * usize::from(intra.max(1))];
    (0..slots).map(first).collect()
}

/// Where the engine's threads for requests on `intra` threads run: the cores without a caller; all
/// where every core has one.
pub(super) fn helper_cores(cores: &[usize], intra: u16) -> Vec<usize> {
    let callers = caller_cores(cores, intra);
    let rest = cores.iter().filter(|core| !callers.contains(core));
    let rest: Vec<usize> = rest.copied().collect();
    match rest.is_empty() {
        true => cores.to_vec(),
        false => rest,
    }
}

/// Keeps the calling thread, and those it starts, to `cores`. Where the system refuses, it goes on
/// as it is: figures are then less steady, not wrong.
pub(super) fn keep_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(*core);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(%error, "a thread cannot be kept to its cores");
    }
}
