//! Token buckets and quotas that front ends share.
//!
//! A front end takes tokens in blocks, before the requests that spend them arrive. So no request
//! waits for a store.

use std::collections::HashMap;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::Error;

/// A token bucket: its rate and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens that come in per second, above 0.
    pub per_s: f64,
    /// Largest number of tokens, at least 1. A new bucket is full.
    pub burst: f64,
}

/// Buckets and counters by name, shared by all users of the store.
///
/// Contract: a bucket never grants more than it held and what came in since. A quota never grants
/// more than its limit in one window. Calls are linearizable. Time is the caller's, unless the
/// store was told to use a clock of its own; a clock that goes back fills nothing.
#[async_trait]
pub trait RateStore: Send + Sync {
    /// Takes up to `most` whole tokens from the bucket `name`; possibly none.
    async fn take(&self, name: &str, most: u32, rate: Rate, now_ms: u64) -> Result<u32, Error>;

    /// Gives back tokens that were taken and not spent. The bucket never holds more than its burst.
    async fn give_back(&self, name: &str, tokens: u32, rate: Rate) -> Result<(), Error>;

    /// Counts up to `most` units against a quota of `limit` in the window of `window_ms` that
    /// contains `now_ms`. Windows begin at multiples of their length. Returns the number of granted
    /// units.
    async fn spend(
        &self,
        name: &str,
        most: u32,
        (limit, window_ms): (u64, u64),
        now_ms: u64,
    ) -> Result<u32, Error>;
}

/// Buckets of a single process.
#[derive(Debug, Default)]
pub struct InProcessRates {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    buckets: HashMap<String, Bucket>,
    quotas: HashMap<String, Quota>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Quota {
    window: u64,
    spent: u64,
}

impl InProcessRates {
    /// Rates without used buckets.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl RateStore for InProcessRates {
    async fn take(&self, name: &str, most: u32, rate: Rate, now_ms: u64) -> Result<u32, Error> {
        let mut content = self.content.lock();
        let full = Bucket {
            tokens: rate.burst,
            at_ms: now_ms,
        };
        let bucket = content.buckets.entry(name.to_owned()).or_insert(full);
        let elapsed_s = now_ms.saturating_sub(bucket.at_ms) as f64 / 1e3;
        bucket.tokens = (bucket.tokens + elapsed_s * rate.per_s).min(rate.burst);
        bucket.at_ms = bucket.at_ms.max(now_ms);
        let granted = bucket.tokens.floor().clamp(0.0, f64::from(most));
        bucket.tokens -= granted;
        Ok(granted as u32)
    }

    async fn give_back(&self, name: &str, tokens: u32, rate: Rate) -> Result<(), Error> {
        if let Some(bucket) = self.content.lock().buckets.get_mut(name) {
            bucket.tokens = (bucket.tokens + f64::from(tokens)).min(rate.burst);
        }
        Ok(())
    }

    async fn spend(
        &self,
        name: &str,
        most: u32,
        (limit, window_ms): (u64, u64),
        now_ms: u64,
    ) -> Result<u32, Error> {
        let mut content = self.content.lock();
        let window = now_ms / window_ms.max(1);
        let fresh = Quota { window, spent: 0 };
        let quota = content.quotas.entry(name.to_owned()).or_insert(fresh);
        if quota.window < window {
            *quota = fresh;
        }
        let left = limit.saturating_sub(quota.spent);
        let granted = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        quota.spent += u64::from(granted);
        Ok(granted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conformance::rate::Rates;

    crate::bind_rate_conformance!(async { (Arc::new(InProcessRates::new()) as Rates, ()) });
}
