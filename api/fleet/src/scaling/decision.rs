//! Decisions of the autoscaler.

use serde::{Deserialize, Serialize};
use sextant_metadata::{Alternative, Decision, Input, MOST_DECISIONS, Subject};
use sextant_types::{Code, VariantId};
use utoipa::ToSchema;

use super::class::ClassBody;
use crate::{ApiState, codec::short, problem::Problem};

/// Which decisions to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionParams {
    limit: Option<usize>,
    before: Option<u64>,
    subject: Option<String>,
}

/// The parameters, checked.
pub struct Filter {
    limit: usize,
    before: u64,
    subject: Option<String>,
}

/// What the autoscaler has changed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decisions)]
pub struct DecisionsBody {
    /// Decisions, newest first; the service keeps the last 64.
    pub decisions: Vec<DecisionBody>,
}

/// A change of a desired count, and the reason.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decision, example = example)]
pub struct DecisionBody {
    /// Grows by one with each.
    number: u64,
    /// When it was made, milliseconds since the Unix epoch.
    at_ms: u64,
    /// Of what.
    subject: SubjectBody,
    /// `add_workers`, `remove_workers`, `replicate`, `upgrade`, `downgrade`, `add` or `remove`.
    action: &'static str,
    /// How many workers were desired before.
    from: u32,
    /// How many are desired now.
    to: u32,
    /// Why, in a sentence.
    reason: String,
    /// The demand on which the decision is based, the largest loads first; at most 8.
    inputs: Vec<InputBody>,
    /// What was not done, and why not; at most 8.
    alternatives: Vec<AlternativeBody>,
}

/// What a decision is about.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DecisionSubject)]
pub struct SubjectBody {
    /// `pool`: the desired number of workers of a type. `variant`: the desired number of workers that have it loaded.
    kind: &'static str,
    /// The type of device that the pool has, or the variant.
    name: String,
}

/// Queries with similar targets on which a decision is based.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DecisionInput)]
pub struct InputBody {
    /// For which application.
    application: String,
    #[serde(flatten)]
    class: ClassBody,
    /// Rate of the last minute, including refused queries, queries a second.
    offered_rps: f64,
    /// Rate for which the autoscaler planned, including bursts and the forecast, queries a second.
    planned_rps: f64,
}

/// What was not done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DecisionAlternative)]
pub struct AlternativeBody {
    /// What, in words.
    what: String,
    /// Cost of all workers after that, US dollars an hour; absent if it could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_hour_usd: Option<f64>,
    /// Why not.
    why_not: String,
}

/// An example of a decision for the description of the interface.
pub fn example() -> serde_json::Value {
    serde_json::json!({
        "number": 12, "at_ms": 1_764_000_000_000_u64,
        "subject": {"kind": "pool", "name": "cpu-8"},
        "action": "add_workers", "from": 2, "to": 3,
        "reason": "what is asked for needs 2.4 workers",
        "inputs": [{"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95,
            "offered_rps": 850.0, "planned_rps": 1100.0}],
        "alternatives": [{"what": "1 worker of nvidia-h200", "cost_per_hour_usd": 3.828,
            "why_not": "3 workers of cpu-8 cost less"}],
    })
}

// === impl DecisionParams ===

impl DecisionParams {
    /// Checks the ranges of the parameters.
    pub fn read(self) -> Result<Filter, Problem> {
        let limit = self.limit.unwrap_or(MOST_DECISIONS);
        if !(1..=MOST_DECISIONS).contains(&limit) {
            let detail = format!("`limit` is `{limit}`: it must be 1 to {MOST_DECISIONS}");
            return Err(Problem::new(Code::InvalidRequest, detail).field("limit"));
        }
        if let Some(name) = &self.subject
            && VariantId::new(name).is_err()
        {
            let given = short(name);
            let detail = format!("`subject` is `{given}`: give the name of a pool or of a variant");
            return Err(Problem::new(Code::InvalidName, detail).field("subject"));
        }
        Ok(Filter {
            limit,
            before: self.before.unwrap_or(u64::MAX),
            subject: self.subject,
        })
    }
}

// === impl Filter ===

impl Filter {
    /// Those of the decisions that pass the filter; `newest` is sorted newest first.
    pub fn newest_first<'a>(
        &self,
        newest: impl Iterator<Item = &'a Decision>,
    ) -> impl Iterator<Item = &'a Decision> {
        newest
            .filter(|decision| decision.number < self.before && self.is_about(&decision.subject))
            .take(self.limit)
    }

    fn is_about(&self, subject: &Subject) -> bool {
        let desired = self.subject.as_deref();
        desired.is_none_or(|desired| desired == name(subject))
    }
}

fn name(subject: &Subject) -> &str {
    match subject {
        Subject::Pool(name) => name.as_str(),
        Subject::Variant(name) => name.as_str(),
    }
}

// === impl DecisionBody ===

impl DecisionBody {
    /// A decision, with targets in the terms of each application's metric.
    pub fn new(state: &ApiState, decision: &Decision) -> Self {
        let inputs = decision.inputs.iter();
        Self {
            number: decision.number,
            at_ms: decision.at_ms,
            subject: SubjectBody::from(&decision.subject),
            action: decision.action.name(),
            from: decision.from,
            to: decision.to,
            reason: decision.reason.to_string(),
            inputs: inputs.map(|input| InputBody::new(state, input)).collect(),
            alternatives: decision
                .alternatives
                .iter()
                .map(AlternativeBody::from)
                .collect(),
        }
    }
}

impl From<&Subject> for SubjectBody {
    fn from(subject: &Subject) -> Self {
        let kind = match subject {
            Subject::Pool(_) => "pool",
            Subject::Variant(_) => "variant",
        };
        let name = name(subject).to_owned();
        Self { kind, name }
    }
}

impl InputBody {
    fn new(state: &ApiState, input: &Input) -> Self {
        Self {
            application: input.application.to_string(),
            class: ClassBody::new(state, &input.application, &input.class),
            offered_rps: input.offered_rps,
            planned_rps: input.planned_rps,
        }
    }
}

impl From<&Alternative> for AlternativeBody {
    fn from(alternative: &Alternative) -> Self {
        Self {
            what: alternative.what.to_string(),
            cost_per_hour_usd: alternative.cost_per_hour_usd,
            why_not: alternative.why_not.to_string(),
        }
    }
}
