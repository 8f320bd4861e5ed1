//! Rows of several queries in one call.
//!
//! No query waits for a batch to fill: the queries that wait while all places are taken run together once one is free,
//! in the order of their arrival. A call has at most the rows that its step allows and [`MOST_BYTES`] of inputs; its
//! queries' tensors differ only in their rows. It has so few rows that it ends before the first of its queries is
//! overdue, by the recent times of calls with as many rows.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_pipeline::{Call, CallResult, Function, Memory, Part};
use sextant_rpc::QueryError;
use sextant_types::{Code, NamedTensor, Tensor};
use tokio::sync::oneshot;

use crate::{
    pool::Key,
    process::{CallOutput, step_failed},
};

/// Most bytes of the inputs of several queries in one call.
const MOST_BYTES: u64 = 64 << 20;

/// Most functions whose pace is remembered.
const MOST_REMEMBERED: usize = 1024;

/// The weight of the newest call in the expected time.
const NEWEST: f64 = 0.2;

/// Number of powers of two of rows for which times of calls are kept.
const SIZES: usize = 16;

/// What calls wait for: a function of a file of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) key: Key,
    name: String,
}

/// A waiting query.
pub(crate) struct WaitingCall {
    call: Call,
    rows: u32,
    bytes: u64,
    came: Instant,
    /// How long it had waited when its call began.
    waited: Duration,
    reply: Option<oneshot::Sender<Result<CallResult, QueryError>>>,
}

/// A query's stay in a line. If its caller gives up, the query leaves with the memory that it holds.
pub(crate) struct Stay<'a> {
    lines: &'a Lines,
    line: &'a Line,
    is_answered: bool,
}

/// All waiting queries, by their line.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<Line, State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<WaitingCall>,
    pace: Pace,
}

/// Times of calls, seconds, by the power of two of their rows; 0 if none has run.
#[derive(Debug, Default)]
struct Pace([f64; SIZES]);

/// A query that may join a call: its rows, its bytes, and the seconds until it is overdue.
#[derive(Debug, Clone, Copy)]
struct JoinRequest {
    rows: u32,
    bytes: u64,
    left_s: f64,
}

/// How many of the waiting queries run in one call: at least the first.
fn together(
    waiting: impl IntoIterator<Item = JoinRequest>,
    most_rows: u32,
    expected_s: impl Fn(u32) -> Option<f64>,
) -> usize {
    let (mut rows, mut bytes, mut left_s) = (0u32, 0u64, f64::INFINITY);
    let fits = waiting.into_iter().take_while(|it| {
        let is_first = rows == 0;
        rows = rows.saturating_add(it.rows);
        bytes = bytes.saturating_add(it.bytes);
        left_s = left_s.min(it.left_s);
        let in_time = expected_s(rows).is_none_or(|takes_s| takes_s <= left_s);
        is_first || (rows <= most_rows && bytes <= MOST_BYTES && in_time)
    });
    fits.count()
}

/// Rows of all of them.
pub(crate) fn rows(batch: &[WaitingCall]) -> u32 {
    batch.iter().map(|it| it.rows).sum()
}

/// The inputs of a call for several queries.
pub(crate) struct BatchInputs {
    pub(crate) inputs: Vec<NamedTensor>,
    /// The memory that outputs are counted in.
    pub(crate) memory: Arc<dyn Memory>,
    /// The reservation of the joined inputs, unless they are those of one query.
    _room: Option<Part>,
}

/// Joins the inputs of all queries, in memory that is reserved before.
pub(crate) fn join(batch: &[WaitingCall]) -> Result<BatchInputs, QueryError> {
    let nobody = || QueryError::new(Code::Internal, "nobody waits");
    let first = &batch.first().ok_or_else(nobody)?.call;
    let memory = Arc::clone(&first.memory);
    if batch.len() == 1 {
        return Ok(BatchInputs {
            inputs: first.inputs.clone(),
            memory,
            _room: None,
        });
    }
    let room = memory.take(batch.iter().map(|it| it.bytes).sum())?;
    let columns = first.inputs.iter().enumerate().map(|(at, input)| {
        let parts: Vec<&Tensor> = batch.iter().map(|it| &it.call.inputs[at].tensor).collect();
        let joined = Tensor::concat(&parts);
        let joined =
            joined.map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        Ok(NamedTensor::new(&input.name, joined))
    });
    let inputs = columns.collect::<Result<_, QueryError>>()?;
    Ok(BatchInputs {
        inputs,
        memory,
        _room: Some(room),
    })
}

/// The outputs of a call; an error if their rows differ from those of the inputs.
pub(crate) fn checked((outputs, part): CallOutput, rows: u32) -> Result<CallOutput, QueryError> {
    let is_wrong = |it: &&NamedTensor| it.tensor.rows() != rows as usize;
    match outputs.iter().find(is_wrong) {
        Some(wrong) => Err(step_failed(format!(
            "it took {rows} rows, and gave `{}` with {}: a function with `max_batch` gives a row for each",
            wrong.name,
            wrong.tensor.rows()
        ))),
        None => Ok((outputs, part)),
    }
}

/// Gives each query its rows of the outputs. The reservation is held until the last of them is dropped.
pub(crate) fn share((outputs, part): CallOutput, batch: Vec<WaitingCall>) {
    let (part, all) = (Arc::new(part), rows(&batch));
    let mut first = 0;
    for waiting in batch {
        let count = waiting.rows as usize;
        let own = outputs.iter().map(|output| {
            let rows = output.tensor.slice_rows(first, count);
            let rows = rows.map_err(|error| step_failed(error.to_string()))?;
            Ok(NamedTensor::new(&output.name, rows))
        });
        let own: Result<Vec<_>, QueryError> = own.collect();
        first += count;
        let part: Part = Box::new(Arc::clone(&part));
        waiting.reply_of(own.map(|outputs| (outputs, part)), all);
    }
}

/// The error of a query that is overdue.
pub(crate) fn overdue() -> QueryError {
    let message = "the query's time was over before its turn came";
    QueryError::new(Code::DeadlineExceeded, message)
}

// === impl Line ===

impl Line {
    pub(crate) fn of(function: &Function) -> Self {
        Self {
            key: Key::of(function),
            name: function.name.clone(),
        }
    }
}

// === impl WaitingCall ===

impl WaitingCall {
    /// A query that begins to wait. [`Lines::wait`] returns the receiver of its reply.
    pub(crate) fn new(call: Call, rows: u32) -> Self {
        let held = call.inputs.iter().map(|it| it.tensor.held_bytes() as u64);
        Self {
            bytes: held.sum(),
            call,
            rows,
            came: Instant::now(),
            waited: Duration::ZERO,
            reply: None,
        }
    }

    /// Whether it is overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        self.call.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Answers a query that was called alone.
    pub(crate) fn reply(self, gave: Result<CallOutput, QueryError>) {
        let rows = self.rows;
        self.reply_of(gave, rows);
    }

    fn reply_of(self, gave: Result<CallOutput, QueryError>, batch_rows: u32) {
        let waited = self.waited;
        let called = gave.map(|(outputs, part)| CallResult {
            outputs,
            part,
            waited,
            batch_rows,
        });
        if let Some(reply) = self.reply {
            // A caller that has gone needs no answer.
            drop(reply.send(called));
        }
    }

    fn joining(&self, now: Instant) -> JoinRequest {
        let left = |until: Instant| until.saturating_duration_since(now).as_secs_f64();
        JoinRequest {
            rows: self.rows,
            bytes: self.bytes,
            left_s: self.call.until.map_or(f64::INFINITY, left),
        }
    }

    /// Whether its tensors can be joined with those of another query.
    fn is_like(&self, other: &Self) -> bool {
        let pairs = self.call.inputs.iter().zip(&other.call.inputs);
        let mut pairs = pairs.map(|(one, other)| (one.tensor.shape(), other.tensor.shape()));
        pairs.all(|(one, other)| one.get(1..) == other.get(1..))
    }

    fn has_gone(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

// === impl Stay ===

impl<'a> Stay<'a> {
    pub(crate) fn new(lines: &'a Lines, line: &'a Line) -> Self {
        Self {
            lines,
            line,
            is_answered: false,
        }
    }

    /// Its answer has arrived.
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.lines.leave(self.line);
        }
    }
}

// === impl Lines ===

impl Lines {
    /// Adds a query to a line, and returns where its answer will arrive.
    pub(crate) fn wait(
        &self,
        line: &Line,
        mut waiting: WaitingCall,
    ) -> oneshot::Receiver<Result<CallResult, QueryError>> {
        let (reply, receiver) = oneshot::channel();
        waiting.reply = Some(reply);
        let mut lines = self.0.lock();
        if lines.len() >= MOST_REMEMBERED {
            lines.retain(|_, state| !state.waiting.is_empty());
        }
        let state = lines.entry(line.clone()).or_default();
        state.waiting.push_back(waiting);
        receiver
    }

    /// The queries of the next call, none if all callers have gone. Overdue queries get an error.
    pub(crate) fn take(&self, line: &Line, most_rows: u32) -> Vec<WaitingCall> {
        let mut lines = self.0.lock();
        let Some(state) = lines.get_mut(line) else {
            return Vec::new();
        };
        let mut waiting: VecDeque<WaitingCall> = VecDeque::with_capacity(state.waiting.len());
        for one in state.waiting.drain(..).filter(|it| !it.has_gone()) {
            match one.is_overdue() {
                true => one.reply(Err(overdue())),
                false => waiting.push_back(one),
            }
        }
        let (now, pace) = (Instant::now(), &state.pace);
        let alike = waiting.iter().take_while(|it| it.is_like(&waiting[0]));
        let joining = alike.map(|it| it.joining(now));
        let count = together(joining, most_rows, |rows| pace.expected_s(rows));
        state.waiting = waiting.split_off(count);
        for one in &mut waiting {
            one.waited = now.saturating_duration_since(one.came);
        }
        waiting.into()
    }

    /// Removes the queries whose callers have gone.
    fn leave(&self, line: &Line) {
        if let Some(state) = self.0.lock().get_mut(line) {
            state.waiting.retain(|it| !it.has_gone());
        }
    }

    /// Records the time of a call with `rows` rows.
    pub(crate) fn ran(&self, line: &Line, rows: u32, took: Duration) {
        if let Some(state) = self.0.lock().get_mut(line) {
            state.pace.learn(rows, took.as_secs_f64());
        }
    }
}

// === impl Pace ===

impl Pace {
    fn size(rows: u32) -> usize {
        (rows.max(1).ilog2() as usize).min(SIZES - 1)
    }

    fn learn(&mut self, rows: u32, took_s: f64) {
        let known = &mut self.0[Self::size(rows)];
        *known = match *known > 0.0 {
            true => *known + NEWEST * (took_s - *known),
            false => took_s,
        };
    }

    /// The expected time of a call with `rows` rows: that of the largest known size which is no larger, in proportion
    /// to the rows; else that of the smallest known size.
    fn expected_s(&self, rows: u32) -> Option<f64> {
        let size = Self::size(rows);
        let is_known = |at: &usize| self.0[*at] > 0.0;
        let below = (0..=size).rev().find(is_known);
        let larger = || (size..SIZES).find(is_known).map(|at| self.0[at]);
        let scaled = |at: usize| self.0[at] * f64::from(1u32 << (size - at));
        below.map(scaled).or_else(larger)
    }
}
