//! The rate and the quota of a key.
//!
//! Front ends share the buckets and quotas of a [`RateStore`]. They take tokens from it in blocks,
//! before the requests that spend them arrive, so that a request finds its token in memory. Only
//! the first request after a pause, or one that comes faster than the blocks, waits for a block, at
//! most [`LONGEST_WAIT`]. The store has granted every token, so all front ends together never
//! exceed a rate, a burst or a quota.
//!
//! While the store is unreachable, each front end goes on alone with the last known rate: requests
//! are then limited to the rate times the number of front ends. A quota lets them through and
//! counts them afterwards.

use std::{pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_metadata::{Error, Rate, RateStore};
use sextant_types::time::unix_ms;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

mod pool;

use pool::{DAY_MS, Kind, Pool, SpendOutcome};

/// Longest time that a request waits for a block.
const LONGEST_WAIT: Duration = Duration::from_millis(25);

/// After this time without a request, the unused tokens of a key are given back, ms.
const IDLE_MS: u64 = 10_000;

/// The limits of a key, and the tokens that this front end holds.
pub struct Allowance {
    name: String,
    store: Arc<dyn RateStore>,
    pools: Mutex<Pools>,
    /// Notified when a block has arrived, or could not be had.
    settled: Notify,
}

struct Pools {
    rate: Option<Pool>,
    quota: Option<Pool>,
    /// Requests that wait for a block.
    waiting: u32,
    used_ms: u64,
}

/// How much of its limits a key has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Most requests at once, or in a day.
    pub limit: u64,
    /// Requests that this front end can still admit without asking the store.
    pub remaining: u64,
    /// When there are tokens again, ms from now; 0 if there are some.
    pub reset_ms: u64,
}

/// The refusal of a request beyond the limits of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// How much of its limits the key has used.
    pub usage: Usage,
    /// The limit that is exceeded.
    pub why: &'static str,
}

/// A block of tokens that the store is asked for.
#[derive(Clone, Copy)]
struct Block {
    kind: Kind,
    tokens: u32,
}

/// The outcome of one attempt to spend a token.
enum Look {
    Done(Result<Usage, Refusal>),
    Wait,
}

// === impl Allowance ===

impl Allowance {
    /// The allowance of the key `name`: requests a second, requests a day.
    pub fn new(
        name: &str,
        rate: Option<Rate>,
        quota_per_day: Option<u64>,
        store: Arc<dyn RateStore>,
    ) -> Self {
        Self {
            name: format!("key:{name}"),
            store,
            pools: Mutex::new(Pools {
                rate: rate.map(|rate| Pool::new(Kind::Rate(rate))),
                quota: quota_per_day.map(|limit| Pool::new(Kind::Quota(limit))),
                waiting: 0,
                used_ms: 0,
            }),
            settled: Notify::new(),
        }
    }

    /// Spends one request.
    pub async fn take(self: &Arc<Self>) -> Result<Usage, Refusal> {
        match self.look() {
            Look::Done(result) => result,
            Look::Wait => Box::pin(self.wait()).await,
        }
    }

    /// Gives tokens back to the store if the key has not used any for a while, or if `all` is set.
    pub async fn give_back(&self, all: bool) {
        let taken = {
            let mut pools = self.pools.lock();
            let rests = unix_ms().saturating_sub(pools.used_ms) > IDLE_MS;
            match &mut pools.rate {
                Some(pool) if all || rests => pool.clear(),
                _ => None,
            }
        };
        if let Some((tokens, rate)) = taken
            && let Err(error) = self.store.give_back(&self.name, tokens, rate).await
        {
            tracing::debug!(%error, key = self.name, "tokens were not given back");
        }
    }

    async fn wait(self: &Arc<Self>) -> Result<Usage, Refusal> {
        let until = Instant::now() + LONGEST_WAIT;
        let waiting = WaitGuard::new(self);
        loop {
            let mut settled = pin!(self.settled.notified());
            // From here on no notification is missed.
            settled.as_mut().enable();
            if let Look::Done(result) = self.look() {
                return result;
            }
            if timeout_at(until, settled).await.is_err() {
                drop(waiting);
                return self.give_up();
            }
        }
    }

    /// Spends a token if there is one, and asks for more if few are left.
    fn look(self: &Arc<Self>) -> Look {
        let now_ms = unix_ms();
        let (look, blocks) = {
            let mut pools = self.pools.lock();
            let look = pools.spend(now_ms);
            (look, pools.blocks(now_ms))
        };
        for block in blocks.into_iter().flatten() {
            let allowance = Arc::clone(self);
            tokio::spawn(async move { allowance.fetch(block).await });
        }
        look
    }

    /// The store does not answer: the front end goes on without it.
    fn give_up(self: &Arc<Self>) -> Result<Usage, Refusal> {
        self.pools.lock().go_on_alone(unix_ms());
        match self.look() {
            Look::Done(result) => result,
            Look::Wait => Err(Refusal {
                usage: self.pools.lock().usage(LONGEST_WAIT.as_millis() as u64),
                why: "the key's requests come faster than they can be counted",
            }),
        }
    }

    async fn fetch(&self, block: Block) {
        let now_ms = unix_ms();
        let granted = self.ask(block, now_ms).await;
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.of(block.kind) {
            match granted {
                Ok(granted) => pool.arrived(block.tokens, granted, now_ms),
                Err(error) => {
                    if pool.failed(unix_ms()) {
                        let key = &self.name;
                        tracing::warn!(%error, key, "the key's limits go on without their store");
                    }
                }
            }
        }
        drop(pools);
        self.settled.notify_waiters();
    }

    async fn ask(&self, block: Block, now_ms: u64) -> Result<u32, Error> {
        let Block { kind, tokens } = block;
        match kind {
            Kind::Rate(rate) => self.store.take(&self.name, tokens, rate, now_ms).await,
            Kind::Quota(limit) => {
                let window = (limit, DAY_MS);
                self.store.spend(&self.name, tokens, window, now_ms).await
            }
        }
    }
}

impl Pools {
    fn spend(&mut self, now_ms: u64) -> Look {
        self.used_ms = now_ms;
        let rate = self
            .rate
            .as_mut()
            .map_or(SpendOutcome::Yes, |pool| pool.spend(now_ms));
        match rate {
            SpendOutcome::Yes => {}
            SpendOutcome::Wait => return Look::Wait,
            SpendOutcome::No { retry_after_ms } => {
                let why = "the key's rate is used up";
                return self.refuse(retry_after_ms, why);
            }
        }
        let quota = self
            .quota
            .as_mut()
            .map_or(SpendOutcome::Yes, |pool| pool.spend(now_ms));
        if quota == SpendOutcome::Yes {
            return Look::Done(Ok(self.usage(0)));
        }
        // The quota admits nothing, so the rate's token was not used.
        if let Some(pool) = &mut self.rate {
            pool.unspend();
        }
        match quota {
            SpendOutcome::No { retry_after_ms } => {
                self.refuse(retry_after_ms, "the key's quota for today is used up")
            }
            SpendOutcome::Yes | SpendOutcome::Wait => Look::Wait,
        }
    }

    fn refuse(&self, retry_after_ms: u64, why: &'static str) -> Look {
        let usage = self.usage(retry_after_ms);
        Look::Done(Err(Refusal { usage, why }))
    }

    /// The usage of the rate, or of the quota if there is no rate.
    fn usage(&self, reset_ms: u64) -> Usage {
        let pool = self.rate.as_ref().or(self.quota.as_ref());
        Usage {
            limit: pool.map_or(u64::MAX, Pool::limit),
            remaining: pool.map_or(u64::MAX, Pool::in_hand),
            reset_ms,
        }
    }

    fn blocks(&mut self, now_ms: u64) -> [Option<Block>; 2] {
        let waiting = self.waiting;
        [&mut self.rate, &mut self.quota].map(|pool| {
            let pool = pool.as_mut()?;
            let tokens = pool.wants(waiting, now_ms)?;
            let kind = pool.kind();
            Some(Block { kind, tokens })
        })
    }

    fn go_on_alone(&mut self, now_ms: u64) {
        for pool in [&mut self.rate, &mut self.quota].into_iter().flatten() {
            pool.go_on_alone(now_ms);
        }
    }

    fn of(&mut self, kind: Kind) -> Option<&mut Pool> {
        match kind {
            Kind::Rate(_) => self.rate.as_mut(),
            Kind::Quota(_) => self.quota.as_mut(),
        }
    }
}

/// Counts a request among the waiting ones until it is dropped.
struct WaitGuard<'a>(&'a Allowance);

impl<'a> WaitGuard<'a> {
    fn new(allowance: &'a Allowance) -> Self {
        allowance.pools.lock().waiting += 1;
        Self(allowance)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.pools.lock().waiting -= 1;
    }
}
