//! Retries requests.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use crate::failure::Failure;

/// The number of attempts and their pauses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) max_attempts: u32,
    pub(crate) backoff: Duration,
    pub(crate) max_backoff: Duration,
}

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: Policy,
    failed: u32,
}

impl Policy {
    pub(crate) fn begin(self) -> Attempts {
        Attempts {
            policy: self,
            failed: 0,
        }
    }

    /// Half to one and a half times a mean that doubles, so that many clients that were refused
    /// together do not return together.
    fn pause(&self, failed: u32, chance: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << (failed - 1).min(16));
        let mean = doubled.min(self.max_backoff);
        let fraction = f64::from(chance) / f64::from(u32::MAX);
        mean.mul_f64(0.5 + fraction).min(self.max_backoff)
    }
}

impl Attempts {
    /// Pauses before another attempt. Returns the failure if there must be none.
    pub(crate) async fn again(&mut self, failure: Failure) -> Result<(), Failure> {
        self.failed += 1;
        if !failure.passes() || self.failed >= self.policy.max_attempts {
            return Err(failure);
        }
        // A random seed of the process, different for each call.
        let [chance, ..] = RandomState::new().build_hasher().finish().to_be_bytes();
        let chance = u32::from(chance) << 24;
        let pause = self.policy.pause(self.failed, chance);
        tracing::debug!(
            attempt = self.failed,
            pause_ms = pause.as_millis(),
            failure = failure.text(),
            "artefact store: trying again"
        );
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Whether an earlier attempt may have been carried out although its answer was lost.
    pub(crate) fn is_repeat(&self) -> bool {
        self.failed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_are_bounded() {
        let policy = Policy {
            max_attempts: 9,
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
        };
        for failed in 1..40 {
            let shortest = policy.pause(failed, 0);
            let longest = policy.pause(failed, u32::MAX);
            assert!(shortest < longest, "{failed}");
            assert!(longest <= policy.max_backoff);
            assert!(policy.pause(failed + 1, 0) >= shortest);
        }
        assert_eq!(policy.pause(1, 0), Duration::from_millis(50));
        assert_eq!(policy.pause(1, u32::MAX), Duration::from_millis(150));
    }

    #[tokio::test]
    async fn what_lasts_is_not_tried_again() {
        use crate::failure::Reason;
        let policy = Policy {
            max_attempts: 3,
            backoff: Duration::ZERO,
            max_backoff: Duration::ZERO,
        };
        let failed = |reason| Failure::new(reason, "said so");
        let mut attempts = policy.begin();
        assert!(attempts.again(failed(Reason::Lasting)).await.is_err());
        let mut attempts = policy.begin();
        assert!(attempts.again(failed(Reason::Passing)).await.is_ok());
        assert!(attempts.again(failed(Reason::Internal)).await.is_ok());
        assert!(attempts.again(failed(Reason::Passing)).await.is_err());
    }
}
