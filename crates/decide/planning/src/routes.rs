//! Which steps each query of a sample visited, with how many rows.
//!
//! Routes are kept whole, not as a probability for each step: branches of one query go together (InferLine, section
//! 4.4, replays marginal probabilities; the recorded route costs as little and keeps what belongs together).

use rand::Rng;

use crate::Graph;

/// Rows by query and step; 0 where a query did not visit a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    steps: usize,
    rows: Vec<u16>,
}

// === impl Routes ===

impl Routes {
    /// No query yet, of a graph with so many steps.
    pub fn new(steps: usize) -> Self {
        Self {
            steps,
            rows: Vec::new(),
        }
    }

    /// Adds a query: its rows by step. What is missing counts as not visited.
    pub fn push(&mut self, rows: &[u16]) {
        let given = rows.iter().copied().chain(std::iter::repeat(0));
        self.rows.extend(given.take(self.steps));
    }

    /// Draws so many queries as the scales of the steps say: a step runs with its probability where one of those
    /// before it ran, and its rows beyond the first are geometrically distributed.
    pub fn draw(graph: &Graph, queries: usize, random: &mut impl Rng) -> Self {
        let mut routes = Self::new(graph.steps().len());
        let mut rows = vec![0; graph.steps().len()];
        for _ in 0..queries {
            for (at, step) in graph.steps().iter().enumerate() {
                let may =
                    step.after.is_empty() || step.after.iter().any(|before| rows[*before] > 0);
                let runs = may
                    && (step.scale.probability >= 1.0
                        || random.random::<f64>() < step.scale.probability);
                rows[at] = if runs {
                    count(step.scale.rows, random)
                } else {
                    0
                };
            }
            routes.push(&rows);
        }
        routes
    }

    /// Number of queries.
    pub fn len(&self) -> usize {
        self.rows.len().checked_div(self.steps).unwrap_or(0)
    }

    /// Whether there is no query.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Rows of a query by step. Queries beyond the last begin again with the first.
    #[inline]
    pub fn of(&self, query: usize) -> &[u16] {
        let at = query % self.len().max(1) * self.steps;
        &self.rows[at..at + self.steps]
    }

    /// Mean rows of a step for each query of the pipeline (InferLine's scale factor, for rows).
    pub fn rows_per_query(&self, step: usize) -> f64 {
        let rows = self.rows.iter().skip(step).step_by(self.steps.max(1));
        let sum: u64 = rows.map(|rows| u64::from(*rows)).sum();
        sum as f64 / self.len().max(1) as f64
    }

    /// Share of the queries that visit a step.
    pub fn visits(&self, step: usize) -> f64 {
        let rows = self.rows.iter().skip(step).step_by(self.steps.max(1));
        rows.filter(|rows| **rows > 0).count() as f64 / self.len().max(1) as f64
    }
}

/// One row, and geometrically many more, `mean` together.
fn count(mean: f64, random: &mut impl Rng) -> u16 {
    let on = 1.0 - 1.0 / mean;
    let mut rows = 1;
    while on > 0.0 && rows < u16::MAX && random.random::<f64>() < on {
        rows += 1;
    }
    rows
}
