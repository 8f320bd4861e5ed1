//! Bets on a mean: capital that grows only where the hypothesis is wrong.

/// Shares of the greatest bet that is safe. Each is a player with the same stake, so that nobody needs to know beforehand by
/// how much a hypothesis is wrong; what the best of them wins is at most their number less.
const PLAYERS: [f64; 8] = [0.01, 0.025, 0.05, 0.1, 0.18, 0.3, 0.5, 0.85];

/// Bets against a hypothesis on the mean of bounded values.
#[derive(Debug, Clone)]
pub struct Bet {
    mean: f64,
    /// How much of a unit of capital a player stakes on a unit of value, by player; negative on a mean below.
    stakes: [f64; PLAYERS.len()],
    /// Of each player, the logarithm.
    capitals: [f64; PLAYERS.len()],
}

/// The capital of a bet against "the share is at most `share`", after `hits` of `count`: in whatever order they came.
pub fn capital_above(count: u64, hits: u64, share: f64) -> f64 {
    Bet::above(share, (0.0, 1.0)).after(count, hits)
}

/// The same against "the share is at least `share`".
pub fn capital_below(count: u64, hits: u64, share: f64) -> f64 {
    Bet::below(share, (0.0, 1.0)).after(count, hits)
}

impl Bet {
    /// Against "the mean is at most `mean`", of values between two bounds.
    pub fn above(mean: f64, (low, _): (f64, f64)) -> Self {
        let safe = 1.0 / (mean - low).max(f64::MIN_POSITIVE);
        Self::new(mean, safe.min(1e6))
    }

    /// Against "the mean is at least `mean`".
    pub fn below(mean: f64, (_, high): (f64, f64)) -> Self {
        let safe = 1.0 / (high - mean).max(f64::MIN_POSITIVE);
        Self::new(mean, -safe.min(1e6))
    }

    fn new(mean: f64, safe: f64) -> Self {
        Self {
            mean,
            stakes: PLAYERS.map(|share| share * safe),
            capitals: [0.0; PLAYERS.len()],
        }
    }

    /// The capital after `hits` ones and zeros for the rest.
    fn after(mut self, count: u64, hits: u64) -> f64 {
        let (hits, misses) = (hits.min(count) as f64, count.saturating_sub(hits) as f64);
        let mean = self.mean;
        for (capital, stake) in self.capitals.iter_mut().zip(self.stakes) {
            *capital = hits * (stake * (1.0 - mean)).ln_1p() + misses * (-stake * mean).ln_1p();
        }
        self.capital()
    }

    /// One more value, within the bounds.
    pub fn observe(&mut self, value: f64) {
        for (capital, stake) in self.capitals.iter_mut().zip(self.stakes) {
            *capital += (stake * (value - self.mean)).ln_1p();
        }
    }

    /// What the players have of one unit that they began with.
    pub fn capital(&self) -> f64 {
        let each = self.capitals.iter().map(|log| log.exp());
        each.sum::<f64>() / PLAYERS.len() as f64
    }
}
