//! *Why this answer?*

use askama::Template;
use serde::Deserialize;

use crate::{
    Frame, Question,
    chart::{Stage, Stages},
    figures,
};

/// The explanation of a query, as `/v1/queries/{query}` answers it.
#[derive(Debug, Clone, Deserialize)]
pub struct ExplainedQuery {
    id: String,
    request_id: String,
    trace_id: String,
    at_ms: u64,
    application: Option<String>,
    outcome: String,
    model: Option<String>,
    variant: Option<String>,
    targets_met: Option<bool>,
    explanation: Option<Explanation>,
    problem: Option<Problem>,
    budget: Budget,
}

#[derive(Debug, Clone, Deserialize)]
struct Explanation {
    reason: String,
    considered: u64,
    candidates: Vec<Candidate>,
    #[serde(default)]
    steps: Vec<Step>,
}

/// The outcome of one step of a pipeline.
#[derive(Debug, Clone, Deserialize)]
struct Step {
    name: String,
    outcome: String,
    why: Option<String>,
    variant: Option<String>,
    queue_us: f64,
    compute_us: f64,
    total_us: f64,
    cost_usd: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Problem {
    title: String,
    detail: String,
    code: String,
    #[serde(default)]
    closest: Vec<Candidate>,
}

#[derive(Debug, Clone, Deserialize)]
struct Candidate {
    variant: String,
    device_type: Option<String>,
    accuracy_bound: Option<f64>,
    error_bound: Option<f64>,
    agreement_bound: Option<f64>,
    expected_ms: f64,
    cost_per_1k_usd: f64,
    #[serde(default)]
    estimated: bool,
    state: String,
    verdict: String,
    #[serde(default)]
    misses: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Budget {
    deadline_us: Option<f64>,
    left_us: Option<f64>,
    read_us: f64,
    load_us: f64,
    queue_us: f64,
    run_us: f64,
    return_us: f64,
    write_us: f64,
    total_us: f64,
}

/// The page that lists the queries with explanations.
#[derive(Debug, Template)]
#[template(path = "kept.html")]
pub struct QueriesPage {
    /// The frame.
    pub frame: Frame,
    /// Newest first.
    pub queries: Vec<ExplainedQuery>,
}

/// The page of one query.
#[derive(Debug, Template)]
#[template(path = "answered.html")]
pub struct QueryPage {
    /// The frame.
    pub frame: Frame,
    /// The query.
    pub query: ExplainedQuery,
}

// === impl QueriesPage ===

impl QueriesPage {
    fn verdict(&self) -> String {
        let refused = self.queries.iter().filter(|of| !of.is_answered()).count();
        let late = self.queries.iter().filter(|of| of.is_late()).count();
        match (refused, late) {
            (0, 0) => "Nothing was slow or refused of late.".to_owned(),
            (refused, late) => format!("{refused} refused and {late} slow ones are kept."),
        }
    }
}

// === impl ExplainedQuery ===

impl ExplainedQuery {
    /// The steps of a query that a pipeline answered.
    fn steps(&self) -> &[Step] {
        self.explanation.as_ref().map_or(&[], |of| &of.steps)
    }

    fn is_answered(&self) -> bool {
        self.outcome == "answered"
    }

    /// Whether its deadline has passed.
    fn is_over(&self) -> bool {
        self.budget.left_us.is_some_and(|left| left < 0.0)
    }

    /// Whether it was answered too late, or missed another target.
    fn is_late(&self) -> bool {
        self.is_answered() && (self.is_over() || self.targets_met == Some(false))
    }

    fn class(&self) -> &'static str {
        match (self.is_answered(), self.is_late()) {
            (false, _) => "bad",
            (true, true) => "late",
            (true, false) => "good",
        }
    }

    /// Its outcome, in words.
    fn word(&self) -> String {
        match (self.is_answered(), self.is_late()) {
            (false, _) => figures::words(&self.outcome),
            (true, true) if self.is_over() => "late".to_owned(),
            (true, true) => "short of its targets".to_owned(),
            (true, false) => "in time".to_owned(),
        }
    }

    fn of(&self) -> &str {
        let variant = self.variant.as_deref();
        variant.or(self.application.as_deref()).unwrap_or("–")
    }

    /// The longest stage.
    fn longest(&self) -> (&'static str, f64) {
        let mut stages = self.budget.stages().into_iter();
        let first = stages.next().unwrap_or(("", "", 0.0));
        let longest = stages.fold(first, |most, it| if it.2 > most.2 { it } else { most });
        (longest.1, longest.2)
    }

    fn candidates(&self) -> &[Candidate] {
        match (&self.explanation, &self.problem) {
            (Some(explanation), _) => &explanation.candidates,
            (None, Some(problem)) => &problem.closest,
            (None, None) => &[],
        }
    }

    fn chart(&self) -> String {
        let stages = self.budget.stages().into_iter();
        let stages = stages.map(|(class, _, us)| Stage {
            class,
            ms: us / 1000.0,
        });
        let title = format!(
            "Time of the query by stage, {} in all. The table beside has the figures.",
            figures::us(self.budget.total_us)
        );
        let chart = Stages {
            title: &title,
            bars: vec![("time", stages.collect())],
            target_ms: self.budget.deadline_us.map(|us| us / 1000.0),
        };
        chart.draw()
    }
}

// === impl Budget ===

impl Budget {
    /// Class, name and time of each stage.
    fn stages(&self) -> [(&'static str, &'static str, f64); 6] {
        [
            ("other", "read", self.read_us),
            ("load", "load", self.load_us),
            ("queue", "queue", self.queue_us),
            ("run", "run", self.run_us),
            ("other", "way back", self.return_us),
            ("other", "write", self.write_us),
        ]
    }
}

// === impl Candidate ===

impl Candidate {
    /// Why it was chosen or not: every target that it misses, if known.
    fn verdict(&self) -> String {
        match self.misses.is_empty() {
            true => figures::words(&self.verdict),
            false => format!("misses {}", self.misses.join(" and ")),
        }
    }

    fn bound(&self) -> String {
        match (self.accuracy_bound, self.error_bound, self.agreement_bound) {
            (Some(bound), _, _) => format!("≥ {}", figures::quality(bound)),
            (_, Some(bound), _) => format!("≤ {}", figures::quality(bound)),
            (_, _, Some(bound)) => format!("agrees {}", figures::quality(bound)),
            _ => "–".to_owned(),
        }
    }
}
