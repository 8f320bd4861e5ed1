//! Messages of the dispatcher.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use sextant_types::{
    AccuracyKind, Code, DeviceTypeName, Digest, ModelId, NamedTensor, Route, Signature, StepOf,
    Targets, VariantId, WholeAccuracy, WorkerId,
};

use crate::Ticket;

/// One query on its way.
#[derive(Debug, Clone)]
pub struct Query {
    /// Whom it addresses.
    pub route: Route,
    /// Inputs, checked against the signature by the dispatcher.
    pub inputs: Vec<NamedTensor>,
    /// What is asked for.
    pub targets: Targets,
    /// When nothing meets the targets, answer with the closest variant instead of refusing.
    pub best_effort: bool,
    /// Whether the explanation is wanted.
    pub explain: bool,
    /// What decides which version answers while a canary is tried: queries of one number get one version. `None`: chance.
    pub sticky: Option<u64>,
    /// The number in the token of its answer, where its application takes feedback: what a shadow answers is kept under it.
    pub serial: Option<u64>,
    /// What the front end could answer it with itself, see [`Composite`]. Empty where it has nothing.
    pub composites: Vec<Composite>,
    /// Whether an offline job asks it: it takes what online queries leave, and is no demand.
    pub offline: bool,
    /// The step of a pipeline that asks it; `None` of one that a client asks.
    pub step: Option<Box<ForStep>>,
    /// When the last byte of the request arrived.
    pub arrived: std::time::Instant,
}

impl Query {
    /// A client's query without targets that wants the answer alone.
    pub fn new(route: Route, inputs: Vec<NamedTensor>, arrived: std::time::Instant) -> Self {
        Self {
            route,
            inputs,
            targets: Targets::default(),
            best_effort: false,
            explain: false,
            sticky: None,
            serial: None,
            composites: Vec::new(),
            offline: false,
            step: None,
            arrived,
        }
    }
}

/// A pipeline that is a variant of the application that a query asks. The front end runs it: a dispatcher that finds it
/// better than the variants that it has refuses the query with [`QueryError::instead`].
#[derive(Debug, Clone, PartialEq)]
pub struct Composite {
    /// The pipeline in its version.
    pub variant: VariantId,
    /// Lower bound of its measured quality.
    pub quality_bound: f64,
    /// The 99th percentile of what it took while it was measured, ms.
    pub latency_ms: f64,
    /// What its steps list for a thousand queries, US dollars.
    pub cost_per_1k_usd: f64,
}

/// A query whose inputs stay with the front end that asks: all that a decision needs. The front end
/// has checked the inputs against the signature.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Names the inputs; `attempt` is the first that may be used.
    pub ticket: Ticket,
    /// Whom it addresses.
    pub route: Route,
    /// Rows of its inputs.
    pub rows: u32,
    /// Sizes of the inputs' dynamic dimensions, as [`Signature::dims`] gives them.
    pub dims: Vec<u64>,
    /// What is asked for.
    pub targets: Targets,
    /// When nothing meets the targets, answer with the closest variant instead of refusing.
    pub best_effort: bool,
    /// Whether the explanation is wanted.
    pub explain: bool,
    /// What decides which version answers while a canary is tried: queries of one number get one version. `None`: chance.
    pub sticky: Option<u64>,
    /// Variants whose answers to these inputs the front end has kept.
    pub kept: Vec<KeptAnswer>,
    /// What the front end could answer it with itself.
    pub composites: Vec<Composite>,
    /// Whether an offline job asks it.
    pub offline: bool,
    /// The step of a pipeline that asks it.
    pub step: Option<Box<ForStep>>,
    /// When the last byte of the request arrived.
    pub arrived: std::time::Instant,
}

/// For which step of which pipeline a query is.
#[derive(Debug, Clone, PartialEq)]
pub struct ForStep {
    /// The step.
    pub of: Arc<StepOf>,
    /// How many of the step's runs this query is: less than 1 where it asks for each row of a tensor.
    pub share: f64,
    /// The latency target of the whole, ms.
    pub whole_ms: Option<f64>,
    /// When the query is given up, in place of its latency target, ms after it arrived: a step may take longer than its
    /// share of the whole's target while the whole can still be answered in time. `None`: by its latency target.
    pub patience_ms: Option<f64>,
    /// Where the whole is asked for an accuracy.
    pub accuracy: Option<WholeAccuracy>,
}

/// An answer that a front end has kept: to the inputs of a query, of a variant with that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The variant.
    pub variant: VariantId,
    /// Its file.
    pub file: Digest,
}

/// The variant that was chosen for a query is one whose answer its front end has kept: no device runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheHit {
    /// That of the query.
    pub ticket: Ticket,
    /// The variant.
    pub variant: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Whether the variant meets the stated accuracy and cost targets.
    pub suits: bool,
    /// What was considered, when asked for.
    pub explanation: Option<Explanation>,
}

/// Where the inputs of an [`Ask`] are to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The inputs' name for this placement; replaces that of earlier ones.
    pub ticket: Ticket,
    /// The worker that waits for them.
    pub worker: WorkerId,
    /// The variant that will answer.
    pub variant: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Its file; `None` of a dispatcher that does not say.
    pub file: Option<Digest>,
    /// Whether the variant meets the stated accuracy and cost targets.
    pub suits: bool,
    /// Whether it had to be loaded first.
    pub load: bool,
    /// Price of a second of the slots that the batch occupies there, US dollars.
    pub second_usd: f64,
    /// What was considered, when asked for.
    pub explanation: Option<Explanation>,
}

/// The front end that holds the inputs of an [`Ask`].
pub trait Holder: Send + Sync {
    /// A batch with the query goes to a worker: its inputs are to follow at once. Called once for
    /// each placement, on the scheduler's way: must not block.
    fn assign(&self, assignment: Assignment);

    /// No batch has the query: the variant that was chosen for it is one of [`Ask::kept`]. Called at most once, in place
    /// of all placements.
    ///
    /// Provided for holders that keep no answers: they are never told so.
    fn has(&self, _kept: CacheHit) {}
}

/// Where the time of a query went, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timings {
    /// Waiting for a batch and a device.
    pub queue_us: f64,
    /// The part of `queue_us` in which the chosen variant was loaded, its queue included: all of it where it had
    /// to be loaded first, else 0.
    pub load_us: f64,
    /// Running, joining and cutting the batch included.
    pub compute_us: f64,
    /// From arrival to answer inside the dispatcher.
    pub total_us: f64,
    /// Rows in the batch that carried the query; in the largest of them where it was split. 0 where no batch did: it was
    /// answered from the cache.
    pub batch_rows: u32,
}

impl Timings {
    /// What `rows` rows of the batch pay: their share of its device time, a second of which costs
    /// `second_usd` US dollars.
    pub fn cost_usd(&self, rows: u32, second_usd: f64) -> f64 {
        let share = f64::from(rows) / f64::from(self.batch_rows.max(1));
        self.compute_us / 1e6 * second_usd * share.min(1.0)
    }
}

/// The answer to one query.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The variant that answered.
    pub variant: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Outputs in the signature's order.
    pub outputs: Vec<NamedTensor>,
    /// Rows of the query; 1 for a model without a batch dimension.
    pub rows: u32,
    /// Where the time went.
    pub timings: Timings,
    /// Whether every stated target was met.
    pub targets_met: bool,
    /// The query's share, by rows, of the price of its batch's device time, US dollars.
    pub cost_usd: f64,
    /// What was considered, when asked for.
    pub explanation: Option<Explanation>,
}

/// One considered variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which variant. It is a candidate on each kind of device that it can be had on.
    pub variant: VariantId,
    /// The type of that device, where its workers say so.
    pub device_type: Option<DeviceTypeName>,
    /// The lower bound of its quality: what an accuracy target is compared with where it is one of accuracy.
    pub quality_bound: f64,
    /// What it is the bound of.
    pub kind: AccuracyKind,
    /// Expected latency for this query now: wait, load when needed, run; ms.
    pub expected_ms: f64,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// Whether time and cost are estimates: nothing was measured on this type of device, or at this
    /// size of the inputs.
    pub estimated: bool,
    /// Its state: `active`, `degraded` (overloaded or interfered), `loading`, `inactive`, `failed`.
    pub state: Cow<'static, str>,
    /// `selected`, `dearer`, `accuracy`, `agreement`, `latency`, `cost`, `busy`, `dominated`, ..
    pub verdict: Cow<'static, str>,
}

/// What the selection looked at and why it chose.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Explanation {
    /// One sentence.
    pub reason: String,
    /// Candidates, best first, at most [`Explanation::MOST`].
    pub candidates: Vec<Candidate>,
    /// Variants considered in all.
    pub considered: usize,
    /// What became of each step, in the order in which they ended; empty unless a pipeline answered.
    pub steps: Vec<StepRecord>,
}

/// What became of one step of a pipeline in one query.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// `answered`, `skipped` or `default`: it failed and gave what the definition says.
    pub outcome: Cow<'static, str>,
    /// Why it was skipped or failed.
    pub why: Option<String>,
    /// The variant that answered; the last one where rows were asked one by one.
    pub variant: Option<VariantId>,
    /// Rows that were asked for.
    pub rows: u32,
    /// Waiting for batches and devices, microseconds: the longest of its rows.
    pub queue_us: f64,
    /// The part of it in which a variant was loaded.
    pub load_us: f64,
    /// Running, microseconds: the longest of its rows.
    pub compute_us: f64,
    /// From its begin to its end, further tries included, microseconds.
    pub total_us: f64,
    /// Rows in the largest batch that carried some of its rows.
    pub batch_rows: u32,
    /// Its share of the price of devices' time, US dollars.
    pub cost_usd: f64,
    /// Whether all its targets were met.
    pub targets_met: bool,
}

impl Explanation {
    /// Most candidates listed.
    pub const MOST: usize = 32;
}

/// Why a query was not answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// Stable code.
    pub code: Code,
    /// What happened and what to do.
    pub message: String,
    /// When trying again makes sense, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The closest variants, for `target_infeasible`.
    pub closest: Vec<Candidate>,
    /// Where the query has too many rows: how many it may have.
    pub most_rows: Option<u32>,
    /// Where a composite variant of the front end's answers it.
    pub instead: Option<Box<CompositeChoice>>,
}

/// What the selection came to where it takes a composite variant.
#[derive(Debug, Clone, PartialEq)]
pub struct CompositeChoice {
    /// Which of [`Query::composites`].
    pub variant: VariantId,
    /// What was considered, when asked for.
    pub explanation: Option<Explanation>,
}

/// Longest time after which somebody is advised to try again, ms.
const LONGEST_RETRY_MS: f64 = 3_600_000.0;

impl StepRecord {
    /// A step that answers; nothing is counted yet.
    pub fn answered(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            outcome: "answered".into(),
            why: None,
            variant: None,
            rows: 0,
            queue_us: 0.0,
            load_us: 0.0,
            compute_us: 0.0,
            total_us: 0.0,
            batch_rows: 0,
            cost_usd: 0.0,
            targets_met: true,
        }
    }

    /// A step that did not run, and why.
    pub fn skipped(name: &str, why: &str) -> Self {
        Self {
            outcome: "skipped".into(),
            why: Some(why.to_owned()),
            ..Self::answered(name)
        }
    }
}

impl QueryError {
    /// An error with no advice beyond its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_ms: None,
            closest: Vec::new(),
            most_rows: None,
            instead: None,
        }
    }

    /// The front end has what answers the query best. Whoever knows no composite variants tries again without.
    pub fn instead(instead: CompositeChoice) -> Self {
        let message = format!("`{}` answers this query", instead.variant);
        Self {
            instead: Some(Box::new(instead)),
            ..Self::new(Code::Unavailable, message)
        }
    }

    /// A query of `rows` rows, of which no batch holds more than `most`; `what` says of what.
    pub fn too_many_rows(rows: u32, most: u32, what: &str) -> Self {
        let message =
            format!("the query has `{rows}` rows, and {what} takes at most `{most}`: split it");
        Self {
            most_rows: Some(most),
            ..Self::new(Code::InvalidTensor, message)
        }
    }

    /// Adds when trying again makes sense, in milliseconds: at least one, and no more than an hour, however long
    /// the wait was computed to be.
    pub fn retry_after_ms(mut self, ms: f64) -> Self {
        // What is not a number becomes the least.
        self.retry_after_ms = Some((ms.ceil().min(LONGEST_RETRY_MS) as u64).max(1));
        self
    }

    /// Nothing is registered under the name in `route`.
    pub fn not_found(route: &Route) -> Self {
        let (code, message) = match route {
            Route::Application(id) => (
                Code::ApplicationNotFound,
                format!("no application `{id}` with a registered model"),
            ),
            Route::Model(id) => (
                Code::ModelNotFound,
                format!("no model `{id}` with variants"),
            ),
            Route::Variant(id) => (Code::VariantNotFound, format!("no variant `{id}`")),
        };
        Self::new(code, message)
    }
}

/// The dispatcher as other roles see it.
///
/// Contract: every query gets exactly one result. Dropping the future gives the query up; it may
/// still run, its answer is discarded. `query` never blocks the calling thread.
#[async_trait]
pub trait Dispatch: Send + Sync {
    /// Answers one query.
    async fn query(&self, query: Query) -> Result<Answer, QueryError>;

    /// Places a query whose inputs `holder` has, as often as it takes: a worker that is lost or
    /// gives the batch back makes for another placement. Ends when a worker has run it, whose
    /// outputs went straight to the holder, or with why it was not answered.
    ///
    /// Provided for dispatchers that take queries of their own process only: refuses.
    async fn place(&self, _ask: Ask, _holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        Err(QueryError::new(
            Code::Unavailable,
            "this dispatcher takes queries of its own process only",
        ))
    }

    /// Inputs and outputs of what `route` addresses. Errors with the not-found codes.
    fn signature(&self, route: &Route) -> Result<Signature, QueryError>;

    /// Share of the workers' device time that was busy over the last second, 0 to 1. Offline
    /// jobs pause above 0.4 (INFaaS section 5.3).
    fn utilization(&self) -> f64;

    /// Whether anybody is there who could answer: a worker that stays, or a pool that brings workers. What is not known
    /// yet is not there.
    ///
    /// Provided for dispatchers that always have somebody.
    fn has_workers(&self) -> bool {
        true
    }

    /// Whether `route` can be answered: an instance of it serves, or a worker may load one. Whoever
    /// does not know which engines the workers have takes every worker for one that may.
    fn is_ready(&self, route: &Route) -> bool;
}
