//! Bets on a mean: capital that grows only if the hypothesis is wrong.

/// Shares of the largest safe bet. Each is a player with the same stake, so that it need not be known in advance by how
/// much a hypothesis is wrong. The gain is lower than that of the best player by at most a factor of their number.
const PLAYERS: [f64; 8] = [0.01, 0.025, 0.05, 0.1, 0.18, 0.3, 0.5, 0.85];

/// Bets against a hypothesis on the mean of bounded values.
#[derive(Debug, Clone)]
pub struct Bet {
    mean: f64,
    /// How much of a unit of capital each player stakes on a unit of value; negative if it bets on a lower mean.
    stakes: [f64; PLAYERS.len()],
    /// The logarithm of each player's capital.
    capitals: [f64; PLAYERS.len()],
}

/// The capital of a bet against "the share is at most `share`", after `hits` of `count`, in any order.
pub fn capital_above(count: u64, hits: u64, share: f64) -> f64 {
    Bet::above(share, (0.0, 1.0)).after(count, hits)
}

/// The same against "the share is at least `share`".
pub fn capital_below(count: u64, hits: u64, share: f64) -> f64 {
    Bet::below(share, (0.0, 1.0)).after(count, hits)
}

impl Bet {
    /// A bet against "the mean is at most `mean`", for values between two bounds.
    pub fn above(mean: f64, (low, _): (f64, f64)) -> Self {
        let safe = 1.0 / (mean - low).max(f64::MIN_POSITIVE);
        Self::new(mean, safe.min(1e6))
    }

    /// A bet against "the mean is at least `mean`".
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

    /// Takes in one more value, within the bounds.
    pub fn observe(&mut self, value: f64) {
        for (capital, stake) in self.capitals.iter_mut().zip(self.stakes) {
            *capital += (stake * (value - self.mean)).ln_1p();
        }
    }

    /// The players' capital, for one unit at the start.
    pub fn capital(&self) -> f64 {
        let each = self.capitals.iter().map(|log| log.exp());
        each.sum::<f64>() / PLAYERS.len() as f64
    }
}
