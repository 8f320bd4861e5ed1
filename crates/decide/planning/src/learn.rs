//! How often each step runs and on how many rows, learnt from queries, with intervals.

use crate::{Graph, Routes, Scale};

/// Two-sided 95 % quantile of the standard normal distribution.
const Z: f64 = 1.959_964;

/// Counts of queries by step. Counts of several samples, or of live traffic, can be added together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VisitCounts {
    steps: Vec<Counts>,
    queries: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Counts {
    /// Queries in which a step before it ran.
    could: u64,
    /// Queries in which it ran.
    ran: u64,
    rows: f64,
    squares: f64,
}

/// A value with its interval at 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The figure.
    pub value: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// The learnt scale of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepScale {
    /// Probability that a query of the pipeline visits it (InferLine's scale factor, section 4.3), with Wilson's
    /// interval.
    pub visits: Interval,
    /// Probability that it runs if one of the steps before it ran, with Wilson's interval.
    pub probability: Interval,
    /// Rows of a query that visits it, with the interval of a mean.
    pub rows: Interval,
}

// === impl VisitCounts ===

impl VisitCounts {
    /// The counts from the queries of a sample for the steps of a graph.
    pub fn from_routes(graph: &Graph, routes: &Routes) -> Self {
        let mut learnt = Self::default();
        for query in 0..routes.len() {
            learnt.add(graph, routes.of(query));
        }
        learnt
    }

    /// Adds a query: its rows by step.
    pub fn add(&mut self, graph: &Graph, rows: &[u16]) {
        self.queries += 1;
        self.steps.resize(graph.steps().len(), Counts::default());
        let rows_of = |at: usize| rows.get(at).copied().unwrap_or(0);
        for (at, step) in graph.steps().iter().enumerate() {
            let could =
                step.after.is_empty() || step.after.iter().any(|before| rows_of(*before) > 0);
            let counts = &mut self.steps[at];
            let rows = f64::from(rows_of(at));
            counts.could += u64::from(could);
            counts.ran += u64::from(rows > 0.0);
            counts.rows += rows;
            counts.squares += rows * rows;
        }
    }

    /// Adds counts that were made elsewhere for the same graph.
    pub fn merge(&mut self, other: &Self) {
        self.queries += other.queries;
        self.steps
            .resize(self.steps.len().max(other.steps.len()), Counts::default());
        for (counts, more) in self.steps.iter_mut().zip(&other.steps) {
            counts.could += more.could;
            counts.ran += more.ran;
            counts.rows += more.rows;
            counts.squares += more.squares;
        }
    }

    /// The number of queries so far.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// The learnt scale of a step; `None` before the first query.
    pub fn step(&self, at: usize) -> Option<StepScale> {
        let counts = self.steps.get(at).filter(|_| self.queries > 0)?;
        Some(StepScale {
            visits: Interval::of_share(counts.ran, self.queries),
            probability: Interval::of_share(counts.ran, counts.could),
            rows: counts.mean(),
        })
    }

    /// The scale of a step for [`Graph`]; `None` before a query could visit it.
    pub fn scale(&self, at: usize) -> Option<Scale> {
        let known = self.step(at)?;
        (self.steps[at].could > 0).then_some(Scale {
            probability: known.probability.value,
            rows: known.rows.value.max(1.0),
        })
    }
}

// === impl Counts ===

impl Counts {
    fn mean(&self) -> Interval {
        Interval::of_mean(self.ran, self.rows, self.squares)
    }
}

// === impl Interval ===

impl Interval {
    /// Wilson's interval for `hits` of `of`.
    pub fn of_share(hits: u64, of: u64) -> Self {
        if of == 0 {
            let (value, lower, upper) = (0.0, 0.0, 1.0);
            return Self {
                value,
                lower,
                upper,
            };
        }
        let (n, p) = (of as f64, hits as f64 / of as f64);
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Self {
            value: p,
            lower: ((middle - half) / scale).max(0.0),
            upper: ((middle + half) / scale).min(1.0),
        }
    }

    /// The mean of counts of rows, each at least 1, from their sum and the sum of their squares.
    pub fn of_mean(count: u64, sum: f64, squares: f64) -> Self {
        if count == 0 {
            let (value, lower, upper) = (1.0, 1.0, f64::INFINITY);
            return Self {
                value,
                lower,
                upper,
            };
        }
        let n = count as f64;
        let value = sum / n;
        let variance = (squares / n - value * value).max(0.0) * n / (n - 1.0).max(1.0);
        let half = match count {
            1 => f64::INFINITY,
            _ => Z * (variance / n).sqrt(),
        };
        Self {
            value,
            lower: (value - half).max(1.0),
            upper: value + half,
        }
    }
}
