//! The first moments of a dispatcher that has begun to lead: it may not have reached the workers yet that the metadata
//! store names. What it cannot place then waits, since it knows too little to refuse it.

use std::time::{Duration, Instant};

use tokio::{sync::watch, time::timeout};

/// Who is not reached after so long is away, and what nobody else can answer is refused.
const LONGEST: Duration = Duration::from_secs(3);

/// Since when workers are being reached; not at all where all are.
pub(crate) struct Gathering(watch::Sender<Option<Instant>>);

impl Gathering {
    /// All workers are reached.
    pub(crate) fn over() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The dispatcher begins to lead.
    pub(crate) fn begin(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Every worker is reached, or nothing is given out any more.
    pub(crate) fn end(&self) {
        self.0.send_if_modified(|since| since.take().is_some());
    }

    /// Waits until the workers are reached, and no longer than until `deadline`. Returns whether there was
    /// anything to wait for: if so, another look may find who answers.
    pub(crate) async fn wait(&self, deadline: Option<Instant>) -> bool {
        let Some(since) = *self.0.borrow() else {
            return false;
        };
        let until = deadline.map_or(since + LONGEST, |deadline| deadline.min(since + LONGEST));
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let mut gathering = self.0.subscribe();
        let over = gathering.wait_for(Option::is_none);
        drop(timeout(left, over).await);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_once_all_are_reached() {
        let gathering = Gathering::over();
        assert!(!gathering.wait(None).await);
        gathering.begin();
        let (waited, ()) = tokio::join!(gathering.wait(None), async { gathering.end() });
        assert!(waited);
        assert!(!gathering.wait(None).await);
    }

    #[tokio::test]
    async fn nobody_waits_past_a_deadline() {
        let gathering = Gathering::over();
        gathering.begin();
        assert!(!gathering.wait(Some(Instant::now())).await);
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(gathering.wait(Some(soon)).await);
        assert!(!gathering.wait(Some(soon)).await);
    }
}
