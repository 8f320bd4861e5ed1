//! Waiting for a state.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Longest time until a state comes before a test fails: far beyond the usual time, so that on a
/// busy machine a test fails only if the state never comes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Looks until `look` finds something; `what` names it in the failure.
pub async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    let mut looks = interval(Duration::from_millis(20));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
    }
}
