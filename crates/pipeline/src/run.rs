//! One query's way through a graph.
//!
//! A step runs as soon as its inputs are there, concurrently with steps that are independent of it. The first failure
//! that its step's `on_error` does not forgive ends the query, and steps that still run are given up. Each row of a
//! step with `for_each` is a query of its own, so rows of many queries share batches as usual.

mod rows;
mod step;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use futures::{StreamExt, stream::FuturesUnordered};
use sextant_rpc::{
    Answer, DispatcherClient, Explanation, ForStep, Query, QueryError, StepRecord, Timings,
};
use sextant_types::{Code, ModelId, NamedTensor, VariantId};
use tokio::sync::Semaphore;

use crate::{
    Graph, Interpreter, Memory, OnError, Part, Whole,
    counts::{Counts, Outcome},
    flight::{Congestion, Flight, Traffic},
    graph::{Node, Origin, Work},
    pace::{Pace, RemainingTime},
    service::Catalog,
    split::Seed,
    whole::AccuracyDemand,
};

use step::{StepResult, StepTask, Terms};

/// Most rows of one query that are asked at a time, so that rows of other queries have their turns.
pub(crate) const ROWS_AT_ONCE: usize = 64;

/// What the queries of all pipelines share.
pub(crate) struct Means {
    /// Answers the steps that ask something.
    pub dispatcher: DispatcherClient,
    /// Permits for transforms: as many run at a time.
    pub cores: Arc<Semaphore>,
    /// Counts the memory of what steps make.
    pub memory: Arc<dyn Memory>,
    /// Calls functions of Python files.
    pub python: Arc<dyn Interpreter>,
}

/// The surroundings of a pipeline's queries.
#[derive(Clone, Copy)]
pub(crate) struct QueryContext<'a> {
    pub means: &'a Means,
    /// The pipelines as they were when the query came. The query ends on the versions that it began with.
    pub known: &'a Catalog,
    /// The step of an outer pipeline for which this pipeline runs.
    pub outer: Option<&'a ForStep>,
    /// The accuracy that the query demands of the outermost pipeline.
    pub demanded: Option<&'a AccuracyDemand>,
}

/// The names in a pipeline's answers: the pipeline is the model, and its version is the variant.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub model: ModelId,
    pub variant: VariantId,
}

/// A pipeline that can run, and what it has learnt from its queries.
pub(crate) struct Ready {
    pub graph: Graph,
    pub pace: Pace,
    pub counts: Counts,
    pub traffic: Traffic,
    pub names: Names,
    /// What was measured of the pipeline as a whole.
    pub whole: ArcSwap<Whole>,
}

/// Least share of a query's time that a step gets, even when the query is late: a target must be above 0.
const LEAST_MS: f64 = 1e-3;

/// How long a step may take if its query is never given up: a day.
const LONGEST_MS: f64 = 86_400_000.0;

/// What became of a step.
enum StepEnd {
    Gave(Vec<NamedTensor>),
    Skipped(String),
}

/// A query in progress.
struct Way<'a> {
    graph: &'a Graph,
    pace: &'a Pace,
    counts: &'a Counts,
    flight: Flight<'a>,
    ahead: RemainingTime,
    around: QueryContext<'a>,
    query: &'a Query,
    inputs: Vec<NamedTensor>,
    ended: Vec<Option<StepEnd>>,
    taken: Vec<StepRecord>,
    /// Records of the steps inside steps that are pipelines.
    within: Vec<StepRecord>,
    /// The seed of its draws; `None` until a split step needs one.
    seed: Option<Seed>,
    /// The memory of the outputs of its steps, held as long as the query lasts.
    held: Vec<Part>,
}

/// Answers a query. Each query is answered once. Dropping the future gives up everything that runs for it.
///
/// # Errors
/// Names the step that failed, the row in which it failed, and the reason.
pub(crate) async fn answer(
    ready: &Ready,
    around: QueryContext<'_>,
    mut query: Query,
) -> Result<Answer, QueryError> {
    let Ready {
        graph,
        pace,
        counts,
        names,
        traffic,
        ..
    } = ready;
    let whole = ready.whole.load_full();
    let meets = match whole.check(names.model.as_str(), &query.targets) {
        Err(missed) if !query.best_effort => return Err(missed),
        met => met.is_ok(),
    };
    let bound = graph.signature.bind(std::mem::take(&mut query.inputs));
    let (inputs, _) =
        bound.map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
    let latency_ms = query.targets.latency_ms.filter(|_| !query.best_effort);
    let latency = latency_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
    let demanded = AccuracyDemand::of(&whole, &query.targets);
    let flight = traffic
        .enter(counts, (query.arrived, latency))
        .map_err(|crowded| {
            counts.add(crowded.step, Outcome::Dropped);
            refused(&graph.nodes[crowded.step], crowded, latency_ms)
        })?;
    let mut way = Way {
        graph,
        pace,
        counts,
        flight,
        ahead: pace.ahead(graph),
        around: QueryContext {
            outer: query.step.as_deref(),
            // The accuracy that a step demands of the pipeline that answers it is not a demand on the outermost
            // pipeline.
            demanded: match query.step {
                Some(_) => around.demanded,
                None => demanded.as_ref(),
            },
            ..around
        },
        query: &query,
        inputs,
        ended: graph.nodes.iter().map(|_| None).collect(),
        taken: Vec::with_capacity(graph.nodes.len()),
        within: Vec::new(),
        seed: None,
        held: Vec::with_capacity(graph.nodes.len()),
    };
    way.run().await?;
    way.flight.answered();
    let mut answer = way.compose(names)?;
    answer.targets_met &= meets;
    Ok(answer)
}

/// The error of a query that is given up before its first step.
fn refused(fullest: &Node, crowded: Congestion, latency_ms: Option<f64>) -> QueryError {
    let takes_ms = crowded.takes.as_secs_f64() * 1e3;
    let latency_ms = latency_ms.unwrap_or(f64::INFINITY);
    let too_long =
        format!("the query would take {takes_ms:.1} ms more, and its target is {latency_ms} ms");
    if crowded.pending <= 0.0 {
        return in_step(fullest, QueryError::new(Code::DeadlineExceeded, too_long));
    }
    let message = format!(
        "behind the {:.1} rows that it has yet to answer {too_long}",
        crowded.pending
    );
    let error = QueryError::new(Code::Overloaded, message);
    in_step(fullest, error).retry_after_ms((takes_ms - latency_ms).max(1.0))
}

/// Whether a step gave up a query because time or room was missing.
fn is_dropped(error: &QueryError) -> bool {
    matches!(error.code, Code::Overloaded | Code::DeadlineExceeded)
}

/// The error of a query that is given up in a step.
fn in_step(node: &Node, error: QueryError) -> QueryError {
    // Which targets a step asks is internal to the pipeline: their names mean nothing to the client.
    let is_missing = error.code.kind() == sextant_types::ErrorKind::NotFound;
    QueryError {
        code: if is_missing {
            Code::Unavailable
        } else {
            error.code
        },
        message: format!("step `{}`: {}", node.name, error.message),
        most_rows: None,
        ..error
    }
}

// === impl Way ===

impl<'a> Way<'a> {
    /// Runs all steps that are needed.
    async fn run(&mut self) -> Result<(), QueryError> {
        let graph = self.graph;
        let mut waiting: Vec<usize> = (0..graph.nodes.len()).collect();
        let mut running = FuturesUnordered::new();
        loop {
            // The loop follows the order of the graph: a skipped step lets the steps behind it begin, or skips them, in
            // the same pass.
            let mut still = Vec::with_capacity(waiting.len());
            for at in waiting {
                let node = &graph.nodes[at];
                if !node.after.iter().all(|it| self.ended[*it].is_some()) {
                    still.push(at);
                    continue;
                }
                match self.inputs_of(node) {
                    Ok(inputs) => match self.begin(at, inputs) {
                        Ok(begun) => running.push(async move { (at, begun.run().await) }),
                        Err(error) if is_dropped(&error) => {
                            self.count_failure(at, &error);
                            return Err(in_step(node, error));
                        }
                        Err(error) => self.failed(at, in_step(node, error))?,
                    },
                    Err(SkipReason::Skipped(why)) => {
                        let gave = |it: &usize| matches!(self.ended[*it], Some(StepEnd::Gave(_)));
                        let could = node.after.is_empty() || node.after.iter().any(gave);
                        self.counts.skipped(at, could);
                        self.skip(node, at, why);
                    }
                    Err(SkipReason::Failed(why)) => {
                        let error = QueryError::new(Code::InvalidTensor, why);
                        self.failed(at, in_step(node, error))?;
                    }
                }
            }
            waiting = still;
            match running.next().await {
                Some((at, Ok(gave))) => self.gave(at, gave),
                Some((at, Err(error))) => self.failed(at, in_step(&graph.nodes[at], error))?,
                None if waiting.is_empty() => return Ok(()),
                // The waiting steps wait for a step that was skipped in this pass.
                None => {}
            }
        }
    }

    /// The inputs of a step once all steps that it waits for have ended, or why the step does not run.
    fn inputs_of(&self, node: &Node) -> Result<Vec<NamedTensor>, SkipReason> {
        if let Some(condition) = &node.condition {
            let mentioned = node.after.iter().map(|at| {
                let outputs: &[NamedTensor] = match &self.ended[*at] {
                    Some(StepEnd::Gave(outputs)) => outputs,
                    _ => &[],
                };
                (self.graph.nodes[*at].name.as_ref(), outputs)
            });
            match condition.holds(mentioned) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(SkipReason::Skipped(format!(
                        "`{}` does not hold",
                        condition.text()
                    )));
                }
                Err(why) => return Err(SkipReason::Failed(why)),
            }
        }
        let specs = node.signature.inputs.iter().zip(&node.inputs);
        let inputs = specs.map(|(spec, origins)| {
            let found = origins.iter().find_map(|origin| self.tensor(*origin));
            let missing = || {
                SkipReason::Skipped(format!(
                    "there is nothing for `{}`: {}",
                    spec.name,
                    self.why(origins)
                ))
            };
            let found = found.ok_or_else(missing)?;
            Ok(NamedTensor::new(&spec.name, found.tensor.clone()))
        });
        inputs.collect()
    }

    /// A tensor, if it is there.
    fn tensor(&self, origin: Origin) -> Option<&NamedTensor> {
        match origin {
            Origin::Input(at) => self.inputs.get(at),
            Origin::Output(node, at) => match &self.ended[node] {
                Some(StepEnd::Gave(outputs)) => {
                    rows::output(&self.graph.nodes[node].gives, outputs, at)
                }
                _ => None,
            },
        }
    }

    /// Why none of these tensors is there.
    fn why(&self, origins: &[Origin]) -> String {
        let reasons = origins.iter().filter_map(|origin| match origin {
            Origin::Output(node, at) => {
                let of = &self.graph.nodes[*node];
                match &self.ended[*node] {
                    Some(StepEnd::Skipped(why)) => {
                        Some(format!("step `{}` was skipped, {why}", of.name))
                    }
                    Some(StepEnd::Gave(_)) => {
                        let spec = of.gives.get(*at)?;
                        Some(format!("step `{}` gave no `{}`", of.name, spec.name))
                    }
                    None => None,
                }
            }
            Origin::Input(_) => None,
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// Begins a step with the time that it may take.
    fn begin(&mut self, at: usize, inputs: Vec<NamedTensor>) -> Result<StepTask<'a>, QueryError> {
        let graph = self.graph;
        let (node, query) = (&graph.nodes[at], self.query);
        let due = self.flight.ask(at, asked_rows(node, &inputs));
        let now = Instant::now();
        let left = due.map(|(due, least)| (due.saturating_duration_since(now), least));
        if let Some((left, least)) = left
            && (left.is_zero() || left < least)
        {
            return Err(QueryError::new(
                Code::DeadlineExceeded,
                format!(
                    "{:.3} ms are left for it, with what must follow, and it takes {:.3}",
                    left.as_secs_f64() * 1e3,
                    least.as_secs_f64() * 1e3
                ),
            ));
        }
        let budget_ms = query.targets.latency_ms.map(|latency_ms| {
            let left_ms = latency_ms - elapsed_us(query.arrived) / 1e3;
            self.ahead.budget(at, left_ms.max(LEAST_MS)).max(LEAST_MS)
        });
        let terms = Terms {
            budget_ms,
            until: due.map(|(due, _)| due),
            patience_ms: match left {
                Some((left, _)) => Some(left.as_secs_f64() * 1e3),
                None => budget_ms.map(|_| LONGEST_MS),
            },
            whole_ms: query.targets.latency_ms,
            best_effort: query.best_effort,
            offline: query.offline,
            explain: query.explain,
            sticky: query.sticky,
            number: self.number(node),
        };
        StepTask::new(node, inputs, terms, self.around)
    }

    /// The number by which the query draws one of the targets that a step may ask.
    fn number(&mut self, node: &Node) -> f64 {
        match &node.work {
            Work::Ask(asked) if asked.len() > 1 => {
                let seed = || Seed::new(self.query.sticky, &self.inputs);
                self.seed.get_or_insert_with(seed).number(&node.name)
            }
            _ => 0.0,
        }
    }

    /// Counts a step that gave no answer.
    fn count_failure(&mut self, at: usize, error: &QueryError) {
        let outcome = match is_dropped(error) {
            true => {
                self.flight.given_up();
                Outcome::Dropped
            }
            false => Outcome::Failed,
        };
        self.counts.add(at, outcome);
    }

    fn skip(&mut self, node: &Node, at: usize, why: String) {
        self.taken.push(StepRecord::skipped(&node.name, &why));
        self.ended[at] = Some(StepEnd::Skipped(why));
        self.flight.ended(at, None);
    }

    fn gave(&mut self, at: usize, gave: StepResult) {
        let taken = &gave.taken;
        self.pace.ran(at, taken.total_us / 1e3);
        self.flight.ended(at, Some(taken));
        // The queue time includes loads.
        let waited_us = taken.queue_us;
        self.counts
            .answered(at, taken.rows.max(1), (taken.total_us, waited_us));
        self.taken.push(gave.taken);
        self.within.extend(gave.within);
        self.held.extend(gave.held);
        self.ended[at] = Some(StepEnd::Gave(gave.outputs));
    }

    /// Decides what becomes of the query after a step has failed.
    fn failed(&mut self, at: usize, error: QueryError) -> Result<(), QueryError> {
        self.count_failure(at, &error);
        self.flight.ended(at, None);
        let node = &self.graph.nodes[at];
        let why = format!("it failed: {} ({})", error.message, error.code);
        match node.on_error {
            OnError::Fail => return Err(error),
            OnError::Skip => self.skip(node, at, why),
            OnError::Default => {
                self.taken.push(StepRecord {
                    outcome: "default".into(),
                    ..StepRecord::skipped(&node.name, &why)
                });
                self.ended[at] = Some(StepEnd::Gave(node.default.clone()));
            }
        }
        Ok(())
    }

    /// Composes the answer after all steps have ended.
    fn compose(self, names: &Names) -> Result<Answer, QueryError> {
        let specs = self.graph.signature.outputs.iter().zip(&self.graph.outputs);
        let outputs: Vec<NamedTensor> = specs
            .filter_map(|(spec, origins)| {
                let found = origins.iter().find_map(|origin| self.tensor(*origin))?;
                Some(NamedTensor::new(&spec.name, found.tensor.clone()))
            })
            .collect();
        if outputs.is_empty() {
            let why = self.why(&self.graph.outputs.concat());
            return Err(QueryError::new(
                Code::InvalidTensor,
                format!("there is nothing to answer: {why}"),
            ));
        }
        let total_ms = elapsed_us(self.query.arrived) / 1e3;
        let in_time = self
            .query
            .targets
            .latency_ms
            .is_none_or(|latency_ms| total_ms <= latency_ms);
        let timings = self
            .taken
            .iter()
            .fold(Timings::default(), |sum, step| Timings {
                queue_us: sum.queue_us + step.queue_us,
                load_us: sum.load_us + step.load_us,
                compute_us: sum.compute_us + step.compute_us,
                total_us: total_ms * 1e3,
                batch_rows: sum.batch_rows.max(step.batch_rows),
            });
        Ok(Answer {
            variant: names.variant.clone(),
            model: names.model.clone(),
            outputs,
            rows: 1,
            timings,
            // Without best effort, a step that cannot meet its own targets refuses the query.
            targets_met: in_time
                && self
                    .taken
                    .iter()
                    .all(|step| !self.query.best_effort || step.targets_met),
            cost_usd: self.taken.iter().map(|step| step.cost_usd).sum(),
            explanation: self.query.explain.then(|| Explanation {
                reason: format!(
                    "`{}` is a pipeline of {} steps",
                    names.model,
                    self.graph.nodes.len()
                ),
                steps: self.taken.into_iter().chain(self.within).collect(),
                ..Explanation::default()
            }),
        })
    }
}

/// The rows that a step is asked for.
fn asked_rows(node: &Node, inputs: &[NamedTensor]) -> f64 {
    let at = match node.cut.first() {
        Some(at) => Some(*at),
        None => node.signature.batched.then_some(0),
    };
    let rows = at.and_then(|at| Some(inputs.get(at)?.tensor.rows()));
    rows.unwrap_or(1).max(1) as f64
}

/// Why a step does not run.
enum SkipReason {
    Skipped(String),
    Failed(String),
}

/// Microseconds since `since`.
pub(crate) fn elapsed_us(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
