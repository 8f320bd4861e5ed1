//! One step of one query.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use sextant_rpc::{Answer, DispatcherClient, ForStep, Query, QueryError, StepRecord};
use sextant_transforms::Transform;
use sextant_types::{Code, NamedTensor, Route, StepOf, Targets, TensorSpec};
use tokio::sync::Semaphore;

use super::{QueryContext, ROWS_AT_ONCE, elapsed_us, rows};
use crate::{
    Call, CallResult, Function, Interpreter, LoadedPipeline, Memory, Part,
    graph::{Node, Work},
    split,
};

/// Wait before a step is tried again where the error names no other, ms.
const RETRY_MS: u64 = 1;

/// Longest wait before another try, ms.
const MOST_RETRY_MS: u64 = 1000;

/// A step with its inputs. It owns them, so that steps can run concurrently.
pub(super) struct StepTask<'a> {
    name: Arc<str>,
    work: StepWork<'a>,
    memory: Arc<dyn Memory>,
    /// The sets of inputs; several where the step is asked row by row.
    asked: Vec<Vec<NamedTensor>>,
    by_row: bool,
    gives: Vec<TensorSpec>,
    timeout: Option<Duration>,
    retries: u32,
    begun: Instant,
    until: Option<Instant>,
}

/// What the query of a step takes over from the query of the pipeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The step's share of the time that is left; its variant is chosen by it, ms.
    pub budget_ms: Option<f64>,
    /// When the step must have ended so that the steps behind it can end in time.
    pub until: Option<Instant>,
    /// How long the query can still be answered in time, ms; `None` where it has no target.
    pub patience_ms: Option<f64>,
    /// The latency target of the whole, ms.
    pub whole_ms: Option<f64>,
    /// Whether a late answer is better than none.
    pub best_effort: bool,
    pub offline: bool,
    pub explain: bool,
    pub sticky: Option<u64>,
    /// The number by which the query draws one of several targets, from 0 to below 1.
    pub number: f64,
}

/// The work of the step.
enum StepWork<'a> {
    Ask {
        whom: Answerer<'a>,
        route: Route,
        targets: Targets,
        terms: Box<Terms>,
        /// The step's description for those that it asks.
        step: Option<Box<ForStep>>,
        /// Whether the first dimension of the tensors counts the rows of a batch.
        batched: bool,
    },
    Transform(Arc<Transform>, Arc<Semaphore>),
    Python(Arc<Function>, Arc<dyn Interpreter>),
}

/// Who answers the queries of a step.
enum Answerer<'a> {
    Dispatcher(DispatcherClient),
    /// A pipeline that is a step of this one.
    Pipeline(Arc<LoadedPipeline>, QueryContext<'a>),
}

/// The result of one set of inputs.
type StepOutput = (Vec<NamedTensor>, Part);

/// The result of a step.
pub(super) struct StepResult {
    pub outputs: Vec<NamedTensor>,
    pub taken: StepRecord,
    /// Records of the steps within this step.
    pub within: Vec<StepRecord>,
    /// The memory of its outputs.
    pub held: Vec<Part>,
}

// === impl StepTask ===

impl<'a> StepTask<'a> {
    /// Gives a step its inputs, cut into rows if it is asked for each row.
    ///
    /// # Errors
    /// When the tensors that are cut have different numbers of rows, or too many rows.
    pub fn new(
        node: &Node,
        inputs: Vec<NamedTensor>,
        terms: Terms,
        around: QueryContext<'a>,
    ) -> Result<Self, QueryError> {
        let (means, begun) = (around.means, Instant::now());
        let asked = match node.cut.is_empty() {
            true => vec![inputs],
            false => rows::cut(node, &inputs)?,
        };
        let work = match &node.work {
            Work::Ask(all) => {
                let nobody = || QueryError::new(Code::Internal, "it has nobody to ask");
                let at = split::drawn(all, terms.number).ok_or_else(nobody)?;
                let drawn = &all[at];
                StepWork::Ask {
                    whom: Answerer::of(&drawn.route, around),
                    route: drawn.route.clone(),
                    targets: Targets {
                        latency_ms: terms.budget_ms,
                        ..drawn.targets
                    },
                    step: terms.of_step(node.of.get(at), asked.len(), around),
                    terms: Box::new(terms),
                    batched: node.signature.batched,
                }
            }
            Work::Transform(transform) => {
                StepWork::Transform(Arc::clone(transform), Arc::clone(&means.cores))
            }
            Work::Python(function) => {
                StepWork::Python(Arc::clone(function), Arc::clone(&means.python))
            }
        };
        Ok(Self {
            name: Arc::clone(&node.name),
            work,
            memory: Arc::clone(&means.memory),
            asked,
            by_row: !node.cut.is_empty(),
            gives: node.gives.clone(),
            timeout: node.timeout,
            retries: node.retries,
            begun,
            until: terms.until,
        })
    }

    /// Runs the step, and tries it again as often as it may be tried.
    pub async fn run(self) -> Result<StepResult, QueryError> {
        match self.timeout {
            None => self.try_often().await,
            Some(timeout) => tokio::time::timeout(timeout, self.try_often())
                .await
                .unwrap_or_else(|_| {
                    let message = format!(
                        "it took longer than its `timeout_ms`, {}",
                        timeout.as_secs_f64() * 1e3
                    );
                    Err(QueryError::new(Code::DeadlineExceeded, message))
                }),
        }
    }

    async fn try_often(&self) -> Result<StepResult, QueryError> {
        let mut left = self.retries;
        loop {
            match self.once().await {
                Err(error) if left > 0 && error.code.kind().is_retryable() => {
                    left -= 1;
                    let wait = error.retry_after_ms.unwrap_or(RETRY_MS).min(MOST_RETRY_MS);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                result => return result,
            }
        }
    }

    async fn once(&self) -> Result<StepResult, QueryError> {
        let mut gave = StepResult {
            outputs: Vec::new(),
            taken: StepRecord::answered(&self.name),
            within: Vec::new(),
            held: Vec::new(),
        };
        let of_rows = match &self.work {
            StepWork::Transform(transform, cores) => {
                self.all_transformed((transform, cores), &mut gave).await?
            }
            StepWork::Python(function, python) => {
                self.all_called((function, python), &mut gave).await?
            }
            StepWork::Ask { .. } => self.all_asked(&mut gave).await?,
        };
        gave.outputs = self.joined(of_rows)?;
        gave.taken.total_us = elapsed_us(self.begun);
        Ok(gave)
    }

    async fn all_transformed(
        &self,
        how: (&Arc<Transform>, &Arc<Semaphore>),
        gave: &mut StepResult,
    ) -> Result<Vec<Vec<NamedTensor>>, QueryError> {
        let rows = stream::iter(0..self.asked.len());
        let made = rows
            .map(|row| self.transform(how, &self.asked[row]))
            .buffered(ROWS_AT_ONCE);
        let made: Vec<StepOutput> = self.in_rows(made).await?;
        gave.taken.compute_us = elapsed_us(self.begun);
        let (outputs, parts): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        gave.held = parts;
        Ok(outputs)
    }

    async fn all_called(
        &self,
        how: (&Arc<Function>, &Arc<dyn Interpreter>),
        gave: &mut StepResult,
    ) -> Result<Vec<Vec<NamedTensor>>, QueryError> {
        let rows = stream::iter(0..self.asked.len());
        let called = rows
            .map(|row| self.call(how, &self.asked[row]))
            .buffered(ROWS_AT_ONCE);
        let called: Vec<Option<CallResult>> = self.in_rows(called).await?;
        let taken = &mut gave.taken;
        for it in called.iter().flatten() {
            taken.queue_us = taken.queue_us.max(it.waited.as_secs_f64() * 1e6);
            taken.batch_rows = taken.batch_rows.max(it.batch_rows);
        }
        taken.compute_us = (elapsed_us(self.begun) - taken.queue_us).max(0.0);
        let outputs = called.into_iter().map(|called| match called {
            Some(called) => {
                gave.held.push(called.part);
                called.outputs
            }
            None => rows::nothing(&self.gives),
        });
        Ok(outputs.collect())
    }

    async fn all_asked(&self, gave: &mut StepResult) -> Result<Vec<Vec<NamedTensor>>, QueryError> {
        let rows = stream::iter(0..self.asked.len());
        let answers = rows
            .map(|row| self.ask(&self.asked[row]))
            .buffered(ROWS_AT_ONCE);
        let answers: Vec<Option<Answer>> = self.in_rows(answers).await?;
        let mut outputs = Vec::with_capacity(answers.len());
        for answer in answers {
            let Some(mut answer) = answer else {
                outputs.push(rows::nothing(&self.gives));
                continue;
            };
            gave.within.extend(self.within(&mut answer));
            count(&mut gave.taken, &answer);
            gave.held
                .push(self.memory.take(held_bytes(&answer.outputs))?);
            outputs.push(answer.outputs);
        }
        Ok(outputs)
    }

    /// Collects the results of a stream, and names the row that failed.
    async fn in_rows<T>(
        &self,
        rows: impl futures::Stream<Item = Result<T, QueryError>>,
    ) -> Result<Vec<T>, QueryError> {
        let rows = rows.enumerate().map(|(row, result)| {
            result.map_err(|error| match self.by_row {
                false => error,
                true => QueryError {
                    message: format!("row `{row}`: {}", error.message),
                    ..error
                },
            })
        });
        rows.try_collect().await
    }

    /// Runs a transform on one set of inputs. It takes memory for the run, then memory for the outputs.
    async fn transform(
        &self,
        (transform, cores): (&Arc<Transform>, &Arc<Semaphore>),
        inputs: &[NamedTensor],
    ) -> Result<StepOutput, QueryError> {
        let needed = self.memory.take(transform.needs_bytes(inputs))?;
        let outputs = transformed(transform, (cores, needed), inputs).await?;
        let part = self.memory.take(held_bytes(&outputs))?;
        Ok((outputs, part))
    }

    /// Calls a function with one set of inputs, and takes the memory that sending them needs. A batched function is not
    /// called for no rows.
    async fn call(
        &self,
        (function, python): (&Arc<Function>, &Arc<dyn Interpreter>),
        inputs: &[NamedTensor],
    ) -> Result<Option<CallResult>, QueryError> {
        if function.signature.batched && has_no_rows(inputs) {
            return Ok(None);
        }
        let sent = self.memory.take(held_bytes(inputs))?;
        let call = Call {
            inputs: inputs.to_vec(),
            sent,
            memory: Arc::clone(&self.memory),
            until: self.until,
        };
        python.call(function, call).await.map(Some)
    }

    /// Asks for one set of inputs. A batch of no rows is not asked, and gives `None`.
    async fn ask(&self, inputs: &[NamedTensor]) -> Result<Option<Answer>, QueryError> {
        let StepWork::Ask {
            whom,
            route,
            targets,
            terms,
            step,
            batched,
        } = &self.work
        else {
            return Ok(None);
        };
        if *batched && has_no_rows(inputs) {
            return Ok(None);
        }
        let query = Query {
            targets: *targets,
            best_effort: terms.best_effort,
            explain: terms.explain && matches!(whom, Answerer::Pipeline(..)),
            sticky: whom.sticky(terms),
            offline: terms.offline,
            step: step.clone(),
            ..Query::new(route.clone(), inputs.to_vec(), self.begun)
        };
        match whom {
            Answerer::Dispatcher(dispatcher) => dispatcher.query(query).await.map(Some),
            Answerer::Pipeline(pipeline, around) => {
                nested(pipeline, *around, query).await.map(Some)
            }
        }
    }

    /// The records of the steps of a pipeline that has answered, under the name of this step.
    fn within(&self, answer: &mut Answer) -> Vec<StepRecord> {
        let explanation = answer.explanation.take();
        let steps = explanation.map(|it| it.steps).unwrap_or_default();
        let named = steps.into_iter().map(|step| StepRecord {
            name: format!("{}.{}", self.name, step.name),
            ..step
        });
        named.collect()
    }

    /// Joins the outputs of all rows.
    fn joined(&self, mut gave: Vec<Vec<NamedTensor>>) -> Result<Vec<NamedTensor>, QueryError> {
        if !self.by_row {
            return Ok(gave.pop().unwrap_or_default());
        }
        let keeps = match &self.work {
            StepWork::Ask { batched, .. } => *batched,
            StepWork::Python(function, _) => function.signature.batched,
            StepWork::Transform(..) => false,
        };
        match keeps {
            true => rows::concatenated(&self.gives, &gave),
            false => rows::stacked(&self.gives, &gave),
        }
    }
}

// === impl Terms ===

impl Terms {
    /// Describes the step to those that it asks. The step asks `asked` times for one query. It may belong to a pipeline
    /// that is a step of an outer one.
    fn of_step(
        &self,
        of: Option<&Arc<StepOf>>,
        asked: usize,
        around: QueryContext<'_>,
    ) -> Option<Box<ForStep>> {
        let of = of?;
        let step = ForStep {
            of: Arc::clone(of),
            share: 1.0 / asked.max(1) as f64,
            whole_ms: self.whole_ms,
            patience_ms: self.patience_ms,
            accuracy: None,
        };
        let mut step = match around.outer {
            Some(outer) => within(&step, outer),
            None => step,
        };
        let demanded = around.demanded;
        step.accuracy = demanded.and_then(|it| it.of_step(&step.of.step));
        Some(Box::new(step))
    }
}

/// A step of a pipeline that is itself a step, described as a step of the outermost pipeline. The autoscaler plans it
/// with the steps of that pipeline.
fn within(step: &ForStep, outer: &ForStep) -> ForStep {
    let (of, around) = (&step.of, &outer.of);
    let inside = |name: &String| format!("{}.{name}", around.step);
    let after = match of.after.is_empty() {
        true => around.after.clone(),
        false => of.after.iter().map(inside).collect(),
    };
    let of = StepOf {
        pipeline: around.pipeline.clone(),
        step: inside(&of.step),
        after,
        asks: of.asks.clone(),
    };
    ForStep {
        of: Arc::new(of),
        share: step.share * outer.share,
        whole_ms: outer.whole_ms,
        patience_ms: step.patience_ms,
        accuracy: None,
    }
}

// === impl Answerer ===

impl<'a> Answerer<'a> {
    fn of(route: &Route, around: QueryContext<'a>) -> Self {
        match around.known.of(route) {
            Some(pipeline) => Self::Pipeline(Arc::clone(pipeline), around),
            None => Self::Dispatcher(Arc::clone(&around.means.dispatcher)),
        }
    }

    /// What the query of a step sticks to. Versions of models are drawn anew for each step. A pipeline that is a step
    /// draws as the outer pipeline does.
    fn sticky(&self, terms: &Terms) -> Option<u64> {
        terms.sticky.filter(|_| matches!(self, Self::Pipeline(..)))
    }
}

/// Has a pipeline that is a step answer a query.
fn nested<'a>(
    pipeline: &'a LoadedPipeline,
    around: QueryContext<'a>,
    query: Query,
) -> BoxFuture<'a, Result<Answer, QueryError>> {
    Box::pin(async move { super::answer(pipeline.ready()?, around, query).await })
}

/// Whether there are no rows to ask for. If only some inputs have no rows, the target reports that the inputs do not
/// fit.
fn has_no_rows(inputs: &[NamedTensor]) -> bool {
    !inputs.is_empty() && inputs.iter().all(|input| input.tensor.rows() == 0)
}

/// Bytes that the tensors occupy.
fn held_bytes(outputs: &[NamedTensor]) -> u64 {
    let bytes = outputs
        .iter()
        .map(|output| output.tensor.held_bytes() as u64);
    bytes.sum()
}

/// Runs a transform: a quick one at once, another one on a thread for blocking work. The memory that it needs is held
/// until it has ended, even if nobody waits for it any more.
async fn transformed(
    transform: &Arc<Transform>,
    (cores, needed): (&Arc<Semaphore>, Part),
    inputs: &[NamedTensor],
) -> Result<Vec<NamedTensor>, QueryError> {
    let failed = |error: sextant_transforms::Error| {
        let code = match error {
            sextant_transforms::Error::TooLarge { .. } => Code::TooLarge,
            _ => Code::InvalidTensor,
        };
        QueryError::new(code, error.to_string())
    };
    if transform.is_quick(inputs) {
        return transform.apply(inputs).map_err(failed);
    }
    let stopping = || QueryError::new(Code::Unavailable, "the service is shutting down");
    let core = Arc::clone(cores)
        .acquire_owned()
        .await
        .map_err(|_| stopping())?;
    let (transform, inputs) = (Arc::clone(transform), inputs.to_vec());
    let running = tokio::task::spawn_blocking(move || {
        let _held = (core, needed);
        transform.apply(&inputs)
    });
    match running.await {
        Ok(result) => result.map_err(failed),
        Err(ended) if ended.is_panic() => {
            Err(QueryError::new(Code::Internal, "the transform panicked"))
        }
        Err(_) => Err(stopping()),
    }
}

/// Adds the times of an answer to the record of the step.
fn count(taken: &mut StepRecord, answer: &Answer) {
    let of = &answer.timings;
    taken.variant = Some(answer.variant.clone());
    taken.rows += answer.rows;
    taken.queue_us = taken.queue_us.max(of.queue_us);
    taken.load_us = taken.load_us.max(of.load_us);
    taken.compute_us = taken.compute_us.max(of.compute_us);
    taken.batch_rows = taken.batch_rows.max(of.batch_rows);
    taken.cost_usd += answer.cost_usd;
    taken.targets_met &= answer.targets_met;
}
