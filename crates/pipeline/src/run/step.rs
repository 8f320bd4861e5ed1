//! One step of one query.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use sextant_rpc::{Answer, DispatcherClient, ForStep, Query, QueryError, StepTaken};
use sextant_transforms::Transform;
use sextant_types::{Code, NamedTensor, Route, Targets, Tensor, TensorSpec};
use tokio::sync::Semaphore;

use super::{Means, elapsed_us};
use crate::{
    Called, Function, Interpreter, Memory, Part,
    graph::{Node, Work},
};

/// Most rows of which each is asked.
const MOST_ROWS: usize = 4096;

/// Rows of one query that are asked at once: those of others have their turns between them.
const ROWS_AT_ONCE: usize = 64;

/// How long a step waits before it is tried again, unless it is told otherwise, ms.
const RETRY_MS: u64 = 1;

/// Longest wait before another try, ms.
const MOST_RETRY_MS: u64 = 1000;

/// A step that was given its inputs. It owns them, so that steps run side by side.
pub(super) struct Begun {
    name: Arc<str>,
    work: Doing,
    memory: Arc<dyn Memory>,
    /// What it is asked for; several where it is asked row by row.
    asked: Vec<Vec<NamedTensor>>,
    by_row: bool,
    gives: Vec<TensorSpec>,
    timeout: Option<Duration>,
    retries: u32,
    begun: Instant,
}

/// How long a step may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    /// Its share of what is left, by which its variant is chosen, ms.
    pub budget_ms: Option<f64>,
    /// Until when the query can still be answered in time, ms; `None` where it has no target.
    pub patience_ms: Option<f64>,
    /// The target of the whole, ms.
    pub whole_ms: Option<f64>,
    /// Whether a late answer is better than none.
    pub best_effort: bool,
}

/// What it does.
enum Doing {
    Ask {
        dispatcher: DispatcherClient,
        route: Route,
        targets: Targets,
        best_effort: bool,
        /// As whom it is asked is told of it.
        step: Option<Box<ForStep>>,
        /// Whether rows of a batch are rows of tensors.
        batched: bool,
    },
    Transform(Arc<Transform>, Arc<Semaphore>),
    Python(Arc<Function>, Arc<dyn Interpreter>),
}

/// The result of one set of inputs.
type Made = (Vec<NamedTensor>, Part);

/// What a step gave.
pub(super) struct Gave {
    pub outputs: Vec<NamedTensor>,
    pub taken: StepTaken,
    /// The memory of its outputs.
    pub held: Vec<Part>,
}

// === impl Begun ===

impl Begun {
    /// Gives a step its inputs, cut into rows where it is asked for each.
    ///
    /// # Errors
    /// When the tensors that are cut have unequal numbers of rows, or too many.
    pub fn new(
        node: &Node,
        inputs: Vec<NamedTensor>,
        time: Time,
        means: &Means,
    ) -> Result<Self, QueryError> {
        let asked = match node.cut.is_empty() {
            true => vec![inputs],
            false => cut(node, &inputs)?,
        };
        let work = match &node.work {
            Work::Ask { route, targets } => Doing::Ask {
                dispatcher: Arc::clone(&means.dispatcher),
                route: route.clone(),
                targets: Targets {
                    latency_ms: time.budget_ms,
                    ..*targets
                },
                best_effort: time.best_effort,
                step: node.of.as_ref().map(|of| {
                    Box::new(ForStep {
                        of: Arc::clone(of),
                        share: 1.0 / asked.len().max(1) as f64,
                        whole_ms: time.whole_ms,
                        patience_ms: time.patience_ms,
                    })
                }),
                batched: node.signature.batched,
            },
            Work::Transform(transform) => {
                Doing::Transform(Arc::clone(transform), Arc::clone(&means.cores))
            }
            Work::Python(function) => {
                Doing::Python(Arc::clone(function), Arc::clone(&means.python))
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
            begun: Instant::now(),
        })
    }

    /// Runs the step, as often as it may be tried.
    pub async fn run(self) -> Result<Gave, QueryError> {
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

    async fn try_often(&self) -> Result<Gave, QueryError> {
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

    async fn once(&self) -> Result<Gave, QueryError> {
        let (mut taken, mut held) = (StepTaken::answered(&self.name), Vec::new());
        let outputs = match &self.work {
            Doing::Transform(transform, cores) => {
                let rows = stream::iter(0..self.asked.len());
                let gave = rows
                    .map(|row| self.transform((transform, cores), &self.asked[row]))
                    .buffered(ROWS_AT_ONCE);
                let gave: Vec<Made> = self.in_rows(gave).await?;
                taken.compute_us = elapsed_us(self.begun);
                let (gave, parts): (Vec<_>, Vec<_>) = gave.into_iter().unzip();
                held = parts;
                self.joined(gave)?
            }
            Doing::Python(function, python) => {
                let rows = stream::iter(0..self.asked.len());
                let called = rows
                    .map(|row| self.call((function, python), &self.asked[row]))
                    .buffered(ROWS_AT_ONCE);
                let called: Vec<Called> = self.in_rows(called).await?;
                let waited = called.iter().map(|it| it.waited.as_secs_f64() * 1e6);
                taken.queue_us = waited.fold(0.0, f64::max);
                taken.compute_us = (elapsed_us(self.begun) - taken.queue_us).max(0.0);
                let mut gave = Vec::with_capacity(called.len());
                for Called { outputs, part, .. } in called {
                    held.push(part);
                    gave.push(outputs);
                }
                self.joined(gave)?
            }
            Doing::Ask { .. } => {
                let rows = stream::iter(0..self.asked.len());
                let answers = rows
                    .map(|row| self.ask(&self.asked[row]))
                    .buffered(ROWS_AT_ONCE);
                let answers: Vec<Option<Answer>> = self.in_rows(answers).await?;
                for answer in answers.iter().flatten() {
                    count(&mut taken, answer);
                    held.push(self.memory.take(held_bytes(&answer.outputs))?);
                }
                let gave = answers.into_iter().map(|answer| match answer {
                    Some(answer) => answer.outputs,
                    None => self.nothing(),
                });
                self.joined(gave.collect())?
            }
        };
        taken.total_us = elapsed_us(self.begun);
        Ok(Gave {
            outputs,
            taken,
            held,
        })
    }

    /// All that a stream gives, and in which row it failed.
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

    /// Runs a transform on one set of inputs, in the room that it needs; what it gives keeps its own.
    async fn transform(
        &self,
        (transform, cores): (&Arc<Transform>, &Arc<Semaphore>),
        inputs: &[NamedTensor],
    ) -> Result<Made, QueryError> {
        let needed = self.memory.take(transform.needs_bytes(inputs))?;
        let outputs = transformed(transform, cores, inputs).await?;
        drop(needed);
        let part = self.memory.take(held_bytes(&outputs))?;
        Ok((outputs, part))
    }

    /// Calls a function with one set of inputs, in the room that sending them needs.
    async fn call(
        &self,
        (function, python): (&Arc<Function>, &Arc<dyn Interpreter>),
        inputs: &[NamedTensor],
    ) -> Result<Called, QueryError> {
        let sent = self.memory.take(held_bytes(inputs))?;
        let called = python.call(function, inputs.to_vec(), &self.memory).await?;
        drop(sent);
        Ok(called)
    }

    /// Asks for one set of inputs. A batch of no rows is not asked for: nothing is known of it.
    async fn ask(&self, inputs: &[NamedTensor]) -> Result<Option<Answer>, QueryError> {
        let Doing::Ask {
            dispatcher,
            route,
            targets,
            best_effort,
            step,
            batched,
        } = &self.work
        else {
            return Ok(None);
        };
        if *batched && inputs.iter().any(|input| input.tensor.rows() == 0) {
            return Ok(None);
        }
        let query = Query {
            route: route.clone(),
            inputs: inputs.to_vec(),
            targets: *targets,
            best_effort: *best_effort,
            explain: false,
            sticky: None,
            serial: None,
            composites: Vec::new(),
            step: step.clone(),
            arrived: self.begun,
        };
        dispatcher.query(query).await.map(Some)
    }

    /// What a batch of no rows gives.
    fn nothing(&self) -> Vec<NamedTensor> {
        let empty = self.gives.iter().filter_map(|spec| {
            let shape = spec.shape.iter().enumerate();
            let shape = shape.map(|(axis, size)| {
                if axis == 0 {
                    0
                } else {
                    size.unwrap_or(0) as usize
                }
            });
            let tensor = match spec.data_type.size() {
                Some(_) => Tensor::from_bytes(spec.data_type, shape.collect(), bytes::Bytes::new()),
                None => Tensor::from_strings(shape.collect(), [""; 0]),
            };
            Some(NamedTensor::new(&spec.name, tensor.ok()?))
        });
        empty.collect()
    }

    /// What all rows gave, as one.
    fn joined(&self, mut gave: Vec<Vec<NamedTensor>>) -> Result<Vec<NamedTensor>, QueryError> {
        if !self.by_row {
            return Ok(gave.pop().unwrap_or_default());
        }
        if gave.is_empty() {
            return Ok(self.nothing());
        }
        let keeps = match &self.work {
            Doing::Ask { batched, .. } => *batched,
            Doing::Transform(..) | Doing::Python(..) => false,
        };
        let columns = self.gives.iter().enumerate().map(|(at, spec)| {
            let rows = gave.iter().map(|outputs| {
                let tensor = outputs.get(at).map(|output| output.tensor.clone());
                let tensor = tensor.ok_or_else(|| unequal(spec))?;
                if keeps {
                    Ok(tensor)
                } else {
                    as_row(&tensor).ok_or_else(|| unequal(spec))
                }
            });
            let rows: Vec<Tensor> = rows.collect::<Result<_, QueryError>>()?;
            let rows: Vec<&Tensor> = rows.iter().collect();
            let joined = Tensor::concat(&rows).map_err(|_| unequal(spec))?;
            Ok(NamedTensor::new(&spec.name, joined))
        });
        columns.collect()
    }
}

/// Bytes that tensors take up.
fn held_bytes(outputs: &[NamedTensor]) -> u64 {
    let bytes = outputs
        .iter()
        .map(|output| output.tensor.held_bytes() as u64);
    bytes.sum()
}

fn unequal(spec: &TensorSpec) -> QueryError {
    let message = format!(
        "its rows gave `{}` in different shapes, which no tensor holds: answer each row in one shape",
        spec.name
    );
    QueryError::new(Code::InvalidTensor, message)
}

/// The tensor as the only row of another.
fn as_row(tensor: &Tensor) -> Option<Tensor> {
    let shape: Vec<usize> = std::iter::once(1)
        .chain(tensor.shape().iter().copied())
        .collect();
    tensor.reshaped(shape).ok()
}

/// The inputs of each row.
fn cut(node: &Node, inputs: &[NamedTensor]) -> Result<Vec<Vec<NamedTensor>>, QueryError> {
    let invalid = |message: String| QueryError::new(Code::InvalidTensor, message);
    let mut counts = node
        .cut
        .iter()
        .map(|at| (&inputs[*at].name, inputs[*at].tensor.rows()));
    let (first, rows) = counts
        .next()
        .ok_or_else(|| invalid("it has nothing to cut".to_owned()))?;
    if let Some((other, count)) = counts.find(|(_, count)| *count != rows) {
        return Err(invalid(format!(
            "`{first}` has {rows} rows, and `{other}` has {count}"
        )));
    }
    if rows > MOST_ROWS {
        let message = format!("`{first}` has {rows} rows: a step is asked for {MOST_ROWS} at most");
        return Err(QueryError::new(Code::TooLarge, message));
    }
    let row = |row: usize| {
        let inputs = inputs.iter().enumerate().map(|(at, input)| {
            if !node.cut.contains(&at) {
                return Ok(input.clone());
            }
            let tensor = input.tensor.slice_rows(row, 1);
            let tensor = tensor.map_err(|error| invalid(error.to_string()))?;
            let rank = node.signature.inputs[at].shape.len();
            let tensor = match tensor.shape().len() > rank {
                true => {
                    let shape = tensor.shape()[1..].to_vec();
                    tensor.reshaped(shape)
                }
                false => Ok(tensor),
            };
            let tensor = tensor.map_err(|error| invalid(error.to_string()))?;
            Ok(NamedTensor::new(&input.name, tensor))
        });
        inputs.collect()
    };
    (0..rows).map(row).collect()
}

/// Runs a transform: at once where it is quick, else on a thread that may be busy for long.
async fn transformed(
    transform: &Arc<Transform>,
    cores: &Arc<Semaphore>,
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
        let _core = core;
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

/// Adds what an answer took to what the step took.
fn count(taken: &mut StepTaken, answer: &Answer) {
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
