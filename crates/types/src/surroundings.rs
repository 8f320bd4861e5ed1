//! The time that a query takes on a machine beside its engine's: reading, queueing, copying and composing.

use serde::{Deserialize, Serialize};

/// The time of a core that a query is assumed to take beside its engine before any observation, us. On the machine of
/// `docs/figures.md` a query of the digits application takes less than half of it in a release build.
pub const QUERY_US: f64 = 100.0;

/// The same for each of its rows, us.
pub const ROW_US: f64 = 5.0;

/// The same for each byte of its inputs, us.
pub const BYTE_US: f64 = 0.002;

/// What surrounds the engines on a worker, as far as it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Cores that the worker may use for this work, above 0.
    pub cores: f64,
    /// The ratio of the real time to the time by [`QUERY_US`], [`ROW_US`] and [`BYTE_US`], above 0.
    pub factor: f64,
    /// Whether the engines run on the same cores.
    pub shared: bool,
}

/// The work of queries beside an engine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amounts {
    /// The number of queries.
    pub queries: f64,
    /// Rows of all of them.
    pub rows: f64,
    /// Bytes of their inputs.
    pub bytes: f64,
}

// === impl Surroundings ===

impl Surroundings {
    /// Before any observation of a worker with this many cores, which its engines use as well.
    pub fn unseen(cores: u16) -> Self {
        Self {
            cores: f64::from(cores.max(1)),
            factor: 1.0,
            shared: true,
        }
    }

    /// Time of the whole worker that queries take beside their engine, s.
    pub fn busy_s(&self, of: Amounts) -> f64 {
        of.core_s() * self.factor / self.cores.max(1e-3)
    }

    /// Rows a second that a worker answers, if its engines alone would answer `engine_rps` and each row needs `of_row`
    /// of the surroundings.
    pub fn bound(&self, engine_rps: f64, of_row: Amounts) -> f64 {
        let busy_s = self.busy_s(of_row).max(1e-12);
        match self.shared {
            true => 1.0 / (engine_rps.recip() + busy_s),
            false => engine_rps.min(busy_s.recip()),
        }
    }

    /// The median of several workers of a type; `None` if there are none.
    pub fn middle(mut all: Vec<Self>) -> Option<Self> {
        all.sort_by(|a, b| (a.factor / a.cores).total_cmp(&(b.factor / b.cores)));
        all.get(all.len() / 2).copied()
    }
}

// === impl Amounts ===

impl Amounts {
    /// The time of a core that they are assumed to need before any observation, s.
    pub fn core_s(&self) -> f64 {
        (self.queries * QUERY_US + self.rows * ROW_US + self.bytes * BYTE_US) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Amounts = Amounts {
        queries: 1.0,
        rows: 1.0,
        bytes: 0.0,
    };

    #[test]
    fn a_fast_engine_answers_what_its_surroundings_let_through() {
        // By hand: 105 us of a core, of which there are 2.
        let unseen = Surroundings::unseen(2);
        let rps = unseen.bound(27_795_874.0, ROW);
        assert!((rps - 2e6 / 105.0).abs() < 20.0, "{rps}");
        // The rate of a slow engine changes little.
        let rps = unseen.bound(100.0, ROW);
        assert!((99.0..100.0).contains(&rps), "{rps}");
        let apart = Surroundings {
            shared: false,
            ..unseen
        };
        assert_eq!(apart.bound(100.0, ROW), 100.0);
    }

    #[test]
    fn rows_of_one_query_share_what_a_query_takes() {
        let many = Amounts {
            queries: 1.0 / 64.0,
            ..ROW
        };
        assert!(many.core_s() < ROW.core_s() / 15.0);
    }

    #[test]
    fn the_middle_is_no_outlier() {
        let of = |factor| Surroundings {
            factor,
            ..Surroundings::unseen(1)
        };
        let middle = Surroundings::middle(vec![of(9.0), of(1.0), of(0.5)]);
        assert_eq!(middle, Some(of(1.0)));
        assert_eq!(Surroundings::middle(Vec::new()), None);
    }
}
