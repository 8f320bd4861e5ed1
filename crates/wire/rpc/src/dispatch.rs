//! Messages of the dispatcher.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use sextant_types::{
    AccuracyKind, Code, DeviceTypeName, Digest, ModelId, NamedTensor, Route, Signature, StepOf,
    Targets, VariantId, WholeAccuracy, WorkerId,
};

use crate::Ticket;

/// One query.
#[derive(Debug, Clone)]
pub struct Query {
    /// What it asks.
    pub route: Route,
    /// Inputs, checked against the signature by the dispatcher.
    pub inputs: Vec<NamedTensor>,
    /// Its targets.
    pub targets: Targets,
    /// Whether the closest variant answers if nothing meets the targets, instead of a refusal.
    pub best_effort: bool,
    /// Whether the client asks for the explanation.
    pub explain: bool,
    /// Decides which version answers while a canary is tried: queries with the same number get the same version.
    /// `None`: a random one.
    pub sticky: Option<u64>,
    /// The number in the token of its answer, if its application accepts feedback. The answer of a shadow is stored
    /// under it.
    pub serial: Option<u64>,
    /// Composite variants with which the front end could answer it itself, see [`Composite`]. Empty if it has none.
    pub composites: Vec<Composite>,
    /// Whether an offline job asks it. Such a query uses what online queries leave, and does not count as demand.
    pub offline: bool,
    /// The step of a pipeline that asks it; `None` for the query of a client.
    pub step: Option<Box<ForStep>>,
    /// When the last byte of the request arrived.
    pub arrived: std::time::Instant,
}

impl Query {
    /// A client's query without targets and without an explanation.
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

/// A pipeline that is a variant of the application of a query. The front end runs it. A dispatcher that finds it better
/// than its own variants refuses the query with [`QueryError::instead`].
#[derive(Debug, Clone, PartialEq)]
pub struct Composite {
    /// The pipeline with its version.
    pub variant: VariantId,
    /// Lower bound of its measured quality.
    pub quality_bound: f64,
    /// The 99th percentile of its measured latency, ms.
    pub latency_ms: f64,
    /// The listed cost of its steps for a thousand queries, US dollars.
    pub cost_per_1k_usd: f64,
}

/// A query whose inputs stay with the front end that asks it: all that a decision needs. The front end has checked the
/// inputs against the signature.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Names the inputs. `attempt` is the first number that may be used.
    pub ticket: Ticket,
    /// What it asks.
    pub route: Route,
    /// Number of rows of its inputs.
    pub rows: u32,
    /// Sizes of the inputs' dynamic dimensions, as [`Signature::dims`] gives them.
    pub dims: Vec<u64>,
    /// Its targets.
    pub targets: Targets,
    /// Whether the closest variant answers if nothing meets the targets, instead of a refusal.
    pub best_effort: bool,
    /// Whether the client asks for the explanation.
    pub explain: bool,
    /// Decides which version answers while a canary is tried: queries with the same number get the same version.
    /// `None`: a random one.
    pub sticky: Option<u64>,
    /// Variants whose answers to these inputs the front end has cached.
    pub kept: Vec<KeptAnswer>,
    /// Composite variants with which the front end could answer it itself.
    pub composites: Vec<Composite>,
    /// Whether an offline job asks it.
    pub offline: bool,
    /// The step of a pipeline that asks it.
    pub step: Option<Box<ForStep>>,
    /// When the last byte of the request arrived.
    pub arrived: std::time::Instant,
}

/// The step of a pipeline for which a query is.
#[derive(Debug, Clone, PartialEq)]
pub struct ForStep {
    /// The step.
    pub of: Arc<StepOf>,
    /// Number of the step's runs that this query stands for: less than 1 if the step asks for each row of a tensor.
    pub share: f64,
    /// The latency target of the whole pipeline, ms.
    pub whole_ms: Option<f64>,
    /// When the query is given up, in place of its latency target, ms after its arrival: a step may take longer than
    /// its share of the pipeline's target while the pipeline can still answer in time. `None`: at its latency target.
    pub patience_ms: Option<f64>,
    /// The accuracy that is demanded of the whole pipeline, if any is.
    pub accuracy: Option<WholeAccuracy>,
}

/// An answer that a front end has cached: to the inputs of a query, by a variant with that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The variant.
    pub variant: VariantId,
    /// Its file.
    pub file: Digest,
}

/// The front end has cached the answer of the variant that was chosen for the query: no device runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheHit {
    /// The ticket of the query.
    pub ticket: Ticket,
    /// The variant.
    pub variant: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Whether the variant meets the stated accuracy and cost targets.
    pub suits: bool,
    /// The explanation, if the client asked for it.
    pub explanation: Option<Explanation>,
}

/// Where the inputs of an [`Ask`] must be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The name of the inputs for this placement. It replaces that of earlier placements.
    pub ticket: Ticket,
    /// The worker that waits for them.
    pub worker: WorkerId,
    /// The variant that will answer.
    pub variant: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Its file; `None` from a dispatcher that does not state it.
    pub file: Option<Digest>,
    /// Whether the variant meets the stated accuracy and cost targets.
    pub suits: bool,
    /// Whether the variant had to be loaded first.
    pub load: bool,
    /// Price of a second of the slots that the batch occupies on the worker, US dollars.
    pub second_usd: f64,
    /// The explanation, if the client asked for it.
    pub explanation: Option<Explanation>,
}

/// The front end that holds the inputs of an [`Ask`].
pub trait Holder: Send + Sync {
    /// A batch with the query was sent to a worker: the holder must send its inputs at once. Called once for each
    /// placement, by the scheduler: must not block.
    fn assign(&self, assignment: Assignment);

    /// No batch contains the query: the variant that was chosen for it is one of [`Ask::kept`]. Called at most once,
    /// instead of all placements.
    ///
    /// The provided method is for holders that cache no answers: they never receive this call.
    fn has(&self, _kept: CacheHit) {}
}

/// The parts of a query's time, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timings {
    /// Waiting for a batch and a device.
    pub queue_us: f64,
    /// The part of `queue_us` in which the chosen variant was loaded, including the wait for the load: all of
    /// `queue_us` if the variant had to be loaded first, otherwise 0.
    pub load_us: f64,
    /// Running, including joining and cutting the batch.
    pub compute_us: f64,
    /// From arrival to answer inside the dispatcher.
    pub total_us: f64,
    /// Rows in the batch that contained the query; in the largest batch if the query was split. 0 if no batch did: it
    /// was answered from the cache.
    pub batch_rows: u32,
}

impl Timings {
    /// The cost of `rows` rows of the batch: their share of its device time, of which a second costs `second_usd` US
    /// dollars.
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
    /// The parts of its time.
    pub timings: Timings,
    /// Whether every stated target was met.
    pub targets_met: bool,
    /// The query's share, by rows, of the price of its batch's device time, US dollars.
    pub cost_usd: f64,
    /// The explanation, if the client asked for it.
    pub explanation: Option<Explanation>,
}

/// One considered variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The variant. It is a separate candidate on each type of device on which it can run.
    pub variant: VariantId,
    /// The type of that device, if its workers report it.
    pub device_type: Option<DeviceTypeName>,
    /// The lower bound of its quality, with which a target of accuracy is compared if `kind` is accuracy.
    pub quality_bound: f64,
    /// The kind of the quality.
    pub kind: AccuracyKind,
    /// Expected latency of this query now: wait, load if necessary, and run; ms.
    pub expected_ms: f64,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// Whether time and cost are estimates: nothing was measured on this type of device, or for this size of the
    /// inputs.
    pub estimated: bool,
    /// Its state: `active`, `degraded` (overloaded or interfered), `loading`, `inactive`, `failed`.
    pub state: Cow<'static, str>,
    /// `selected`, `dearer`, `accuracy`, `agreement`, `latency`, `cost`, `busy`, `dominated`, ..
    pub verdict: Cow<'static, str>,
}

/// The candidates of a selection and the reason for the choice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Explanation {
    /// One sentence.
    pub reason: String,
    /// Candidates, best first; at most [`Explanation::MOST`].
    pub candidates: Vec<Candidate>,
    /// Number of all considered variants.
    pub considered: usize,
    /// The result of each step, in the order in which they ended; empty unless a pipeline answered.
    pub steps: Vec<StepRecord>,
}

/// The result of one step of a pipeline for one query.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// `answered`, `skipped`, or `default`: it failed and gave the value in the definition.
    pub outcome: Cow<'static, str>,
    /// Why it was skipped or failed.
    pub why: Option<String>,
    /// The variant that answered; the last one if rows were asked one by one.
    pub variant: Option<VariantId>,
    /// Rows that were asked for.
    pub rows: u32,
    /// Waiting for batches and devices, microseconds: the longest time of its rows.
    pub queue_us: f64,
    /// The part of `queue_us` in which a variant was loaded.
    pub load_us: f64,
    /// Running, microseconds: the longest time of its rows.
    pub compute_us: f64,
    /// From its start to its end, including retries, microseconds.
    pub total_us: f64,
    /// Rows in the largest batch that contained some of its rows.
    pub batch_rows: u32,
    /// Its share of the price of device time, US dollars.
    pub cost_usd: f64,
    /// Whether all its targets were met.
    pub targets_met: bool,
}

impl Explanation {
    /// Largest number of listed candidates.
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
    /// Time after which a retry may succeed, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The closest variants, for `target_infeasible`.
    pub closest: Vec<Candidate>,
    /// The largest number of rows, if the query has too many.
    pub most_rows: Option<u32>,
    /// The composite variant that should answer, if the front end has a better one.
    pub instead: Option<Box<CompositeChoice>>,
}

/// The result of a selection that chooses a composite variant.
#[derive(Debug, Clone, PartialEq)]
pub struct CompositeChoice {
    /// One of [`Query::composites`].
    pub variant: VariantId,
    /// The explanation, if the client asked for it.
    pub explanation: Option<Explanation>,
}

/// Longest time before a retry that is advised, ms.
const LONGEST_RETRY_MS: f64 = 3_600_000.0;

impl StepRecord {
    /// A step that answers, without any counts.
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

    /// A step that was skipped, with the reason.
    pub fn skipped(name: &str, why: &str) -> Self {
        Self {
            outcome: "skipped".into(),
            why: Some(why.to_owned()),
            ..Self::answered(name)
        }
    }
}

impl QueryError {
    /// An error without further advice.
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

    /// The front end has the composite variant that answers the query best. A caller without composite variants asks
    /// again without them.
    pub fn instead(instead: CompositeChoice) -> Self {
        let message = format!("`{}` answers this query", instead.variant);
        Self {
            instead: Some(Box::new(instead)),
            ..Self::new(Code::Unavailable, message)
        }
    }

    /// A query of `rows` rows is larger than any batch, which has at most `most`; `what` names the limit.
    pub fn too_many_rows(rows: u32, most: u32, what: &str) -> Self {
        let message =
            format!("the query has `{rows}` rows, and {what} takes at most `{most}`: split it");
        Self {
            most_rows: Some(most),
            ..Self::new(Code::InvalidTensor, message)
        }
    }

    /// Adds the time after which a retry may succeed, in milliseconds: at least one, and at most an hour, whatever wait
    /// was computed.
    pub fn retry_after_ms(mut self, ms: f64) -> Self {
        // A NaN becomes the least value.
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
/// Contract: every query gets exactly one result. Dropping the future gives up the query; it may still run, but its
/// answer is discarded. `query` never blocks the calling thread.
#[async_trait]
pub trait Dispatch: Send + Sync {
    /// Answers one query.
    async fn query(&self, query: Query) -> Result<Answer, QueryError>;

    /// Places a query whose inputs `holder` has, as often as necessary: if a worker is lost or gives the batch back,
    /// the query is placed again. Ends when a worker has run it and has sent the outputs directly to the holder, or
    /// with the reason why it was not answered.
    ///
    /// The provided method is for dispatchers that accept only queries of their own process: it refuses.
    async fn place(&self, _ask: Ask, _holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        Err(QueryError::new(
            Code::Unavailable,
            "this dispatcher takes queries of its own process only",
        ))
    }

    /// Inputs and outputs of the application, model or variant in `route`. Fails with the not-found codes.
    fn signature(&self, route: &Route) -> Result<Signature, QueryError>;

    /// Share of the workers' device time that was busy over the last second, 0 to 1. Offline jobs pause above 0.4
    /// (INFaaS section 5.3).
    fn utilization(&self) -> f64;

    /// Whether a worker that stays exists, or a pool that starts workers. Workers that are not known yet do not count.
    ///
    /// The provided method is for dispatchers that always have a worker.
    fn has_workers(&self) -> bool {
        true
    }

    /// Whether `route` can be answered: an instance for it serves, or a worker may load one. A dispatcher that does not
    /// know which engines the workers have assumes that each worker may.
    fn is_ready(&self, route: &Route) -> bool;
}
