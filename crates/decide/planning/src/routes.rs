//! Which steps each query of a sample visited, with how many rows.
//!
//! Routes are stored whole, not as a probability for each step, because branches of one query go together. (InferLine,
//! section 4.4, replays marginal probabilities; a recorded route costs as little and preserves the correlations.)

use rand::Rng;

use crate::{Graph, parts::Frequency};

/// Rows by query and step; 0 where a query did not visit a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    steps: usize,
    rows: Vec<u16>,
}

// === impl Routes ===

impl Routes {
    /// Makes routes without queries, for a graph with this many steps.
    pub fn new(steps: usize) -> Self {
        Self {
            steps,
            rows: Vec::new(),
        }
    }

    /// Adds a query: its rows by step. Missing entries count as not visited.
    pub fn push(&mut self, rows: &[u16]) {
        let given = rows.iter().copied().chain(std::iter::repeat(0));
        self.rows.extend(given.take(self.steps));
    }

    /// Draws this many queries by the scales of the steps. A step runs with its probability if one of those before it
    /// ran, and its rows beyond the first are geometrically distributed. The steps of a split share one draw.
    pub fn draw(graph: &Graph, queries: usize, random: &mut impl Rng) -> Self {
        let mut routes = Self::new(graph.steps().len());
        let mut rows = vec![0; graph.steps().len()];
        let parts = parts(graph);
        let mut drawn: Vec<f64> = vec![0.0; graph.splits().len()];
        for _ in 0..queries {
            for number in &mut drawn {
                *number = random.random();
            }
            for (at, step) in graph.steps().iter().enumerate() {
                let may =
                    step.after.is_empty() || step.after.iter().any(|before| rows[*before] > 0);
                let probability = step.scale.probability;
                let runs = may
                    && match parts[at] {
                        Some((split, from)) => (from..from + probability).contains(&drawn[split]),
                        None => probability >= 1.0 || random.random::<f64>() < probability,
                    };
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

    /// Rows of a query by step. Queries beyond the last start again with the first.
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

/// By step: its split, and the lower end of its range of the number drawn for the split; `None` if it is in no split.
fn parts(graph: &Graph) -> Vec<Option<(usize, f64)>> {
    let mut parts = vec![None; graph.steps().len()];
    for (split, of) in graph.splits().iter().enumerate() {
        let mut from = 0.0;
        for at in of {
            parts[*at] = Some((split, from));
            from += graph.steps()[*at].scale.probability;
        }
    }
    parts
}

/// Computes the probabilities of steps from how many queries ran them, whatever goes together: two branches of one step
/// are not two independent chances for what follows both.
#[derive(Debug, Clone)]
pub struct Fit {
    queries: usize,
    /// By step, in the order of the graph: which queries of a sample run it.
    ran: Vec<Vec<bool>>,
}

// === impl Fit ===

impl Fit {
    /// Starts with a graph without steps, and a sample of this many queries.
    pub fn new(queries: usize) -> Self {
        Self {
            queries,
            ran: Vec::new(),
        }
    }

    /// Adds a step that runs this often, if one of `after` ran and none of `apart` did, which are the steps of its
    /// split before it. Returns its probability if one of `after` ran.
    pub fn add(
        &mut self,
        after: &[usize],
        apart: &[usize],
        often: Frequency,
        random: &mut impl Rng,
    ) -> f64 {
        let any = |of: &[usize], query: usize| of.iter().any(|at| self.ran[*at][query]);
        let comes: Vec<usize> = (0..self.queries)
            .filter(|query| after.is_empty() || any(after, *query))
            .collect();
        let may: Vec<usize> = comes
            .iter()
            .copied()
            .filter(|query| !any(apart, *query))
            .collect();
        let wanted = match often {
            Frequency::OfAll(share) => share.max(0.0) * self.queries as f64,
            Frequency::WhereItCould(probability) => probability.max(0.0) * comes.len() as f64,
        };
        let wanted = (wanted.round() as usize).min(may.len());
        let mut ran = vec![false; self.queries];
        let mut left = wanted;
        for (at, query) in may.iter().enumerate() {
            // Selection sampling: `left` of the remaining queries are still to be taken.
            if random.random::<f64>() * ((may.len() - at) as f64) < left as f64 {
                ran[*query] = true;
                left -= 1;
            }
        }
        self.ran.push(ran);
        match often {
            Frequency::WhereItCould(probability) => probability,
            Frequency::OfAll(_) if comes.is_empty() => 0.0,
            Frequency::OfAll(_) => wanted as f64 / comes.len() as f64,
        }
    }
}

/// One row plus a geometrically distributed number of rows, with a mean of `mean` in all.
fn count(mean: f64, random: &mut impl Rng) -> u16 {
    let on = 1.0 - 1.0 / mean;
    let mut rows = 1;
    while on > 0.0 && rows < u16::MAX && random.random::<f64>() < on {
        rows += 1;
    }
    rows
}
