//! Rows of several queries in one call.
//!
//! Nobody waits for a batch to fill: what waits while all places are taken runs together once one is free, in the order of
//! its coming. A call has at most the rows that its step says and [`MOST_BYTES`], of tensors that are alike but for their
//! rows, and so few that it ends before the first of its queries is overdue, by what calls of as many rows took of late.

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

/// Functions whose pace is remembered.
const MOST_REMEMBERED: usize = 1024;

/// The share of the newest call in what is expected.
const NEWEST: f64 = 0.2;

/// Powers of two of rows of which it is known how long calls take.
const SIZES: usize = 16;

/// What calls wait for: a function of a file of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) key: Key,
    name: String,
}

/// A query that waits.
pub(crate) struct WaitingCall {
    call: Call,
    rows: u32,
    bytes: u64,
    came: Instant,
    /// How long it had waited when its call began.
    waited: Duration,
    reply: Option<oneshot::Sender<Result<CallResult, QueryError>>>,
}

/// Whoever waits in a line. Where it gives up, it leaves with the memory that it holds.
pub(crate) struct Stay<'a> {
    lines: &'a Lines,
    line: &'a Line,
    is_answered: bool,
}

/// All that wait, by what they wait for.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<Line, State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<WaitingCall>,
    pace: Pace,
}

/// What calls take, seconds, by the power of two of their rows; 0 where none has run.
#[derive(Debug, Default)]
struct Pace([f64; SIZES]);

/// One that may join a call: its rows, its bytes, and the seconds that are left to it.
#[derive(Debug, Clone, Copy)]
struct JoinRequest {
    rows: u32,
    bytes: u64,
    left_s: f64,
}

/// How many of those that wait run in one call: at least the first.
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

/// What a call gets of all of them.
pub(crate) struct BatchInputs {
    pub(crate) inputs: Vec<NamedTensor>,
    /// Where what is given is counted.
    pub(crate) memory: Arc<dyn Memory>,
    /// The room of the inputs, where they are others than those of one query.
    _room: Option<Part>,
}

/// The inputs of all of them, in room that is taken before they are joined.
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

/// What a call gave, unless it has other rows than it took.
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

/// Gives each its rows of what a call gave. The memory is that of all until the last has gone.
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

/// What is said to one whose time is over.
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
    /// A query that begins to wait. Whoever waits for its reply is told of by [`Lines::wait`].
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

    /// Whether its time is over.
    pub(crate) fn is_overdue(&self) -> bool {
        self.call.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Answers it, which was called alone.
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
            // Whoever has gone needs no answer.
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

    /// Whether its rows fit between those of another one.
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

    /// Its answer has come.
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
    /// Has a query wait, and says where its answer will come.
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

    /// Those that run in the next call, none where all have gone. Those that are overdue are told so.
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

    /// Takes out those who have gone.
    fn leave(&self, line: &Line) {
        if let Some(state) = self.0.lock().get_mut(line) {
            state.waiting.retain(|it| !it.has_gone());
        }
    }

    /// A call of so many rows took so long.
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

    /// What a call of so many rows takes: as the largest that is known and no larger, in proportion to its rows; else as the
    /// smallest that is known.
    fn expected_s(&self, rows: u32) -> Option<f64> {
        let size = Self::size(rows);
        let is_known = |at: &usize| self.0[*at] > 0.0;
        let below = (0..=size).rev().find(is_known);
        let larger = || (size..SIZES).find(is_known).map(|at| self.0[at]);
        let scaled = |at: usize| self.0[at] * f64::from(1u32 << (size - at));
        below.map(scaled).or_else(larger)
    }
}
