//! Tokens that were taken in advance from one bucket or quota: a state machine without a clock.
//!
//! A block doubles if it follows the last one fast, and halves if it follows it slowly. So a busy
//! key asks the store some dozen times a second, and a quiet key withholds few tokens from the
//! other front ends.

use sextant_metadata::Rate;

/// A quota's window, ms.
pub const DAY_MS: u64 = 24 * 3600 * 1000;

/// Blocks that follow each other faster than this grow, ms.
const FAST_MS: u64 = 50;

/// Blocks that follow each other slower than this shrink, ms.
const SLOW_MS: u64 = 500;

/// Largest block, tokens.
const LARGEST_BLOCK: f64 = 4096.0;

/// Longest pause after an empty bucket, ms.
const LONGEST_PAUSE_MS: f64 = 60_000.0;

/// Time between two requests to a store that is unreachable, or has nothing left today, ms.
const ASK_AGAIN_MS: u64 = 500;

/// The kind of the tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Tokens of a bucket.
    Rate(Rate),
    /// Tokens of a quota of so many a day.
    Quota(u64),
}

/// The outcome of an attempt to spend a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendOutcome {
    /// A token is spent.
    Yes,
    /// No token is left; a block is on its way or can be asked for.
    Wait,
    /// There is no token.
    No {
        /// When to try again.
        retry_after_ms: u64,
    },
}

/// The tokens that this front end holds.
#[derive(Debug)]
pub struct Pool {
    kind: Kind,
    tokens: u32,
    block: u32,
    /// When the last block was asked for.
    asked_ms: u64,
    /// Whether a block is on its way.
    asking: bool,
    /// Time before which the store has no tokens.
    not_before_ms: u64,
    /// The store failed to answer last time.
    is_away: bool,
    /// The bucket for requests while the store is unreachable or slow.
    alone: Option<LocalBucket>,
    /// Requests that were admitted while the store was unreachable, and are not counted yet: quotas
    /// only.
    debt: u32,
}

/// A bucket of this front end alone, for the time while the store is unreachable.
#[derive(Debug, Clone, Copy)]
struct LocalBucket {
    tokens: f64,
    at_ms: u64,
}

// === impl Pool ===

impl Pool {
    /// A pool without tokens.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            tokens: 0,
            block: 1,
            asked_ms: 0,
            asking: false,
            not_before_ms: 0,
            is_away: false,
            alone: None,
            debt: 0,
        }
    }

    /// The kind of the tokens.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Most tokens at once.
    pub fn limit(&self) -> u64 {
        match self.kind {
            Kind::Rate(rate) => rate.burst as u64,
            Kind::Quota(limit) => limit,
        }
    }

    /// Tokens that can be spent without asking the store.
    pub fn in_hand(&self) -> u64 {
        let alone = self.alone.map_or(0.0, |alone| alone.tokens);
        u64::from(self.tokens).max(alone as u64)
    }

    /// Spends a token.
    pub fn spend(&mut self, now_ms: u64) -> SpendOutcome {
        self.begin_day(now_ms);
        if self.tokens > 0 {
            self.tokens -= 1;
            return SpendOutcome::Yes;
        }
        if let Some(alone) = &mut self.alone {
            return match self.kind {
                Kind::Rate(rate) => alone.spend(rate, now_ms),
                Kind::Quota(_) => {
                    self.debt = self.debt.saturating_add(1);
                    SpendOutcome::Yes
                }
            };
        }
        match self.not_before_ms.saturating_sub(now_ms) {
            0 => SpendOutcome::Wait,
            _ => SpendOutcome::No {
                retry_after_ms: self.retry_after_ms(now_ms),
            },
        }
    }

    /// Returns a spent token to the pool.
    pub fn unspend(&mut self) {
        match &mut self.alone {
            Some(alone) => alone.tokens += 1.0,
            None => self.tokens += 1,
        }
    }

    /// The number of tokens to ask the store for now. Then [`arrived`](Self::arrived) or
    /// [`failed`](Self::failed) must follow. `waiting` is the number of requests without a token.
    pub fn wants(&mut self, waiting: u32, now_ms: u64) -> Option<u32> {
        let enough = self.tokens > self.block / 2 && self.debt == 0;
        if self.asking || enough || now_ms < self.not_before_ms {
            return None;
        }
        match now_ms.saturating_sub(self.asked_ms) {
            since if since < FAST_MS => self.block = self.block.saturating_mul(2),
            since if since > SLOW_MS => self.block /= 2,
            _ => {}
        }
        self.block = self.block.clamp(1, self.largest_block());
        self.asking = true;
        self.asked_ms = now_ms;
        let most = self.limit().min(u64::from(u32::MAX)) as u32;
        let block = self.block.max(waiting.min(most)) - self.tokens.min(self.block - 1);
        Some(block.saturating_add(self.debt))
    }

    /// A block has arrived that was asked for at `asked_at_ms`; it may be smaller than `wanted`.
    pub fn arrived(&mut self, wanted: u32, granted: u32, asked_at_ms: u64) {
        self.asking = false;
        self.is_away = false;
        self.alone = None;
        let settled = granted.min(self.debt);
        self.debt -= settled;
        self.tokens += granted - settled;
        if granted < wanted {
            self.debt = 0;
            let wait_ms = match self.kind {
                Kind::Rate(rate) => {
                    (1000.0 / rate.per_s).ceil().clamp(1.0, LONGEST_PAUSE_MS) as u64
                }
                Kind::Quota(_) => ASK_AGAIN_MS,
            };
            self.not_before_ms = asked_at_ms + wait_ms;
        }
    }

    /// The store did not answer. Returns whether it had not failed the time before.
    pub fn failed(&mut self, now_ms: u64) -> bool {
        self.asking = false;
        self.not_before_ms = now_ms + ASK_AGAIN_MS;
        let is_news = !std::mem::replace(&mut self.is_away, true);
        self.begin_alone(now_ms);
        is_news
    }

    /// A block takes longer to arrive than requests wait.
    pub fn go_on_alone(&mut self, now_ms: u64) {
        if self.asking && self.tokens == 0 {
            self.begin_alone(now_ms);
        }
    }

    /// Removes the tokens of a rate, to be given back; those of a quota cannot be given back.
    pub fn clear(&mut self) -> Option<(u32, Rate)> {
        match self.kind {
            Kind::Rate(rate) if self.tokens > 0 => Some((std::mem::take(&mut self.tokens), rate)),
            Kind::Rate(_) | Kind::Quota(_) => None,
        }
    }

    fn begin_alone(&mut self, at_ms: u64) {
        let tokens = match self.kind {
            // The clock counts in milliseconds: the tokens of a millisecond are there from its
            // beginning.
            Kind::Rate(rate) => (rate.per_s / 1e3).min(rate.burst).max(1.0),
            Kind::Quota(_) => 1.0,
        };
        self.alone.get_or_insert(LocalBucket { tokens, at_ms });
    }

    /// Drops a quota's tokens at the end of their day.
    fn begin_day(&mut self, now_ms: u64) {
        let is_quota = matches!(self.kind, Kind::Quota(_));
        if is_quota && self.asked_ms / DAY_MS != now_ms / DAY_MS && self.asked_ms > 0 {
            self.tokens = 0;
            self.not_before_ms = 0;
        }
    }

    fn retry_after_ms(&self, now_ms: u64) -> u64 {
        match self.kind {
            Kind::Rate(_) => self.not_before_ms - now_ms,
            Kind::Quota(_) => DAY_MS - now_ms % DAY_MS,
        }
    }

    /// Half of a burst, so that other front ends find tokens; for a quota so few that losing them
    /// with a process does not matter.
    fn largest_block(&self) -> u32 {
        let most = match self.kind {
            Kind::Rate(rate) => rate.burst / 2.0,
            Kind::Quota(limit) => limit as f64 / 1000.0,
        };
        most.clamp(1.0, LARGEST_BLOCK) as u32
    }
}

impl LocalBucket {
    fn spend(&mut self, rate: Rate, now_ms: u64) -> SpendOutcome {
        let elapsed_s = now_ms.saturating_sub(self.at_ms) as f64 / 1e3;
        self.tokens = (self.tokens + elapsed_s * rate.per_s).min(rate.burst);
        self.at_ms = self.at_ms.max(now_ms);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return SpendOutcome::Yes;
        }
        let missing_s = (1.0 - self.tokens) / rate.per_s;
        SpendOutcome::No {
            retry_after_ms: (missing_s * 1e3).ceil().max(1.0) as u64,
        }
    }
}

#[cfg(test)]
mod tests;
