//! Workers that the metadata store names and that cannot be reached: those that a dispatcher has not reached yet since
//! it began to lead, and those that it has just lost. A query that the dispatcher cannot place then waits, because the
//! dispatcher knows too little to refuse it. Most of these workers come back, for example after a machine stood still.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use sextant_types::WorkerId;
use tokio::{sync::watch, time::timeout};

/// A worker that is not reached within this time counts as unavailable. Queries that only it could serve are refused.
const LONGEST: Duration = Duration::from_secs(3);

/// Since when workers are being reached. Empty if all are reached, or if the missing ones have been missing for long.
pub(crate) struct WarmUp(watch::Sender<MissingWorkers>);

#[derive(Default)]
struct MissingWorkers {
    since: Option<Instant>,
    workers: BTreeSet<WorkerId>,
}

impl WarmUp {
    /// All workers are reached.
    pub(crate) fn over() -> Self {
        Self(watch::Sender::new(MissingWorkers::default()))
    }

    /// The dispatcher begins to lead.
    pub(crate) fn begin(&self) {
        self.0.send_replace(MissingWorkers {
            since: Some(Instant::now()),
            workers: BTreeSet::new(),
        });
    }

    /// No more work is given out.
    pub(crate) fn end(&self) {
        self.0.send_replace(MissingWorkers::default());
    }

    /// Sets the workers that are not reached. A worker that is missed for the first time is waited for anew. Waiting
    /// queries are notified of each worker that is back.
    pub(crate) fn missing(&self, workers: BTreeSet<WorkerId>) {
        self.0.send_if_modified(|known| {
            let is_over = workers.is_empty() && known.since.is_some();
            let is_back = !known.workers.is_subset(&workers);
            if is_over {
                known.since = None;
            } else if !workers.is_subset(&known.workers) {
                known.since = Some(Instant::now());
            }
            known.workers = workers;
            is_over || is_back
        });
    }

    /// Waits until a worker is reached, but no longer than until `deadline`. Returns whether there was anything to wait
    /// for. If so, another look may find a worker that can answer.
    pub(crate) async fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut gathering = self.0.subscribe();
        let Some(since) = gathering.borrow_and_update().since else {
            return false;
        };
        let until = deadline.map_or(since + LONGEST, |deadline| deadline.min(since + LONGEST));
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        drop(timeout(left, gathering.changed()).await);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_once_all_are_reached() {
        let gathering = WarmUp::over();
        assert!(!gathering.wait(None).await);
        gathering.begin();
        let (waited, ()) = tokio::join!(gathering.wait(None), async { gathering.end() });
        assert!(waited);
        assert!(!gathering.wait(None).await);
    }

    #[tokio::test]
    async fn a_worker_that_was_lost_is_waited_for_once() {
        let worker = |name| BTreeSet::from([WorkerId::new(name).expect("a name")]);
        let gathering = WarmUp::over();
        gathering.missing(worker("a"));
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        assert!(gathering.wait(soon()).await);
        // It has been away for long when the next worker is lost.
        let long_ago = Instant::now().checked_sub(LONGEST).expect("a time");
        gathering
            .0
            .send_modify(|missing| missing.since = Some(long_ago));
        gathering.missing(worker("a"));
        assert!(!gathering.wait(soon()).await);
        gathering.missing(BTreeSet::from_iter(
            [worker("a"), worker("b")].into_iter().flatten(),
        ));
        // One worker is back, and the other is still away.
        let began = Instant::now();
        let back = async { gathering.missing(worker("a")) };
        let (waited, ()) = tokio::join!(gathering.wait(None), back);
        assert!(waited && began.elapsed() < LONGEST);
        let back = async { gathering.missing(BTreeSet::new()) };
        let (waited, ()) = tokio::join!(gathering.wait(None), back);
        assert!(waited);
        assert!(!gathering.wait(None).await);
    }

    #[tokio::test]
    async fn nobody_waits_past_a_deadline() {
        let gathering = WarmUp::over();
        gathering.begin();
        assert!(!gathering.wait(Some(Instant::now())).await);
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(gathering.wait(Some(soon)).await);
        assert!(!gathering.wait(Some(soon)).await);
    }
}
