//! The children of a service: which calls have one, which wait, and which are started again when.
//!
//! A call takes a place, of which there are as many as processes may run; calls wait for places in the order of their
//! arrival. The call then uses an idle process of its file, or starts one. If there are as many processes as allowed,
//! the one that has been idle for longest is ended for it. So there are never more processes than places, whatever
//! pipelines there are.
//!
//! Calls of a function that accepts rows of several queries wait in a line ([`batch`](crate::batch)): the call that
//! gets a place runs all queries that fit into one call, and the others get their answers while they wait.
//!
//! A process that ended, hung or was refused memory is not used again. A file whose processes end again and again is
//! refused for a while that doubles each time, so that it takes no place from others.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use sextant_isolation::{Death, Program};
use sextant_pipeline::{Call, CallResult, Function, Interpreter, Memory, Part};
use sextant_rpc::QueryError;
use sextant_types::{Code, Digest, NamedTensor};
use tokio::sync::Semaphore;

use crate::{
    batch::{self, Line, Lines, Stay, WaitingCall},
    process::{CallFailure, CallOutput, ChildFailure, Process, step_failed},
};

/// Longest time from the start of a child until its file has run.
const START: Duration = Duration::from_secs(60);

/// Pause after the second end of a process in a row; it doubles each time, up to [`LONGEST_REST`].
const REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Most files for which ends of processes are remembered.
const MOST_REMEMBERED: usize = 1024;

/// Most characters of a process's last output in an error.
const MOST_SAID: usize = 500;

/// How functions are called.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that starts a child: it runs [`crate::Confinement`].
    pub program: Program,
    /// Most children at once.
    pub processes: usize,
    /// Longest time of one call.
    pub time_limit: Duration,
}

/// Calls functions of Python files.
pub struct Python(Arc<Shared>);

struct Shared {
    settings: Settings,
    places: Arc<Semaphore>,
    lines: Lines,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Idle processes, the longest idle one first.
    idle: Vec<(Key, Process)>,
    /// Number of children, with the idle ones.
    alive: usize,
    ends: HashMap<Key, Ends>,
}

/// The owner of a child: a file of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pipeline: String,
    digest: Digest,
}

/// How often the processes of a file have ended in a row.
#[derive(Debug, Clone)]
struct Ends {
    count: u32,
    until: Instant,
}

/// What a child is to do.
enum Order {
    Find,
    /// Call with these inputs, their reservation, and the memory that outputs are counted in.
    Call(Vec<NamedTensor>, Option<Part>, Arc<dyn Memory>),
}

// === impl Python ===

impl Python {
    /// A pool without children.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Shared {
            places: Arc::new(Semaphore::new(settings.processes.max(1))),
            settings,
            lines: Lines::default(),
            state: Mutex::default(),
        }))
    }

    /// Carries an order out in its turn, unless that is too late for the caller.
    async fn carry_out(
        &self,
        function: &Arc<Function>,
        order: Order,
        until: Option<Instant>,
    ) -> Result<(Option<CallOutput>, Duration), QueryError> {
        let came = Instant::now();
        let key = Key::of(function);
        self.0.check_rest(&key)?;
        let place = Arc::clone(&self.0.places).acquire_owned().await;
        let place = place.map_err(|_| stopping())?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(batch::overdue());
        }
        let waited = came.elapsed();
        let (shared, function) = (Arc::clone(&self.0), Arc::clone(function));
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            shared.work(&key, &function, order)
        });
        match work.await {
            Ok(result) => result.map(|gave| (gave, waited)),
            Err(ended) if ended.is_panic() => Err(panicked()),
            Err(_) => Err(stopping()),
        }
    }
}

impl Python {
    /// Calls a function in its turn, together with other queries that wait for it then.
    async fn call_together(
        &self,
        function: &Arc<Function>,
        waiting: WaitingCall,
    ) -> Result<CallResult, QueryError> {
        let line = Line::of(function);
        self.0.check_rest(&line.key)?;
        // It is dropped after the reply's receiver, by which the line finds the queries whose callers have gone.
        let mut stay = Stay::new(&self.0.lines, &line);
        let mut reply = self.0.lines.wait(&line, waiting);
        let replied = loop {
            let place = tokio::select! {
                biased;
                replied = &mut reply => break replied,
                place = Arc::clone(&self.0.places).acquire_owned() => place.map_err(|_| stopping())?,
            };
            let (shared, line) = (Arc::clone(&self.0), line.clone());
            let function = Arc::clone(function);
            let work = tokio::task::spawn_blocking(move || {
                let _place = place;
                shared.work_together(&line, &function);
            });
            // Earlier queries may have taken this one into their call, and it then needs no place of its own.
            tokio::select! {
                biased;
                replied = &mut reply => break replied,
                _ = work => {}
            }
        };
        stay.answered();
        replied.unwrap_or_else(|_| Err(panicked()))
    }

    /// Calls a function in its turn, alone.
    async fn call_alone(
        &self,
        function: &Arc<Function>,
        call: Call,
    ) -> Result<CallResult, QueryError> {
        let order = Order::Call(call.inputs, Some(call.sent), call.memory);
        let (gave, waited) = self.carry_out(function, order, call.until).await?;
        let nothing = || QueryError::new(Code::Internal, "the call gave nothing");
        let (outputs, part) = gave.ok_or_else(nothing)?;
        Ok(CallResult {
            outputs,
            part,
            waited,
            batch_rows: 0,
        })
    }
}

fn stopping() -> QueryError {
    QueryError::new(Code::Unavailable, "the service is shutting down")
}

fn panicked() -> QueryError {
    QueryError::new(Code::Internal, "the call panicked")
}

#[async_trait]
impl Interpreter for Python {
    fn state(&self) -> Result<(), QueryError> {
        Ok(())
    }

    async fn check(&self, function: &Arc<Function>) -> Result<(), QueryError> {
        self.carry_out(function, Order::Find, None).await.map(drop)
    }

    async fn call(&self, function: &Arc<Function>, call: Call) -> Result<CallResult, QueryError> {
        let bound = function.signature.bind(call.inputs);
        let (inputs, rows) =
            bound.map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        let call = Call { inputs, ..call };
        match function.signature.batched {
            true => {
                let waiting = WaitingCall::new(call, rows);
                self.call_together(function, waiting).await
            }
            false => self.call_alone(function, call).await,
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Runs a call in a child for those waiting queries that fit into it. If that fails, each query is called alone.
    fn work_together(&self, line: &Line, function: &Function) {
        let most = function.max_batch.unwrap_or(1);
        let mut batch = self.lines.take(line, most);
        if batch.len() > 1 {
            let before = self.state.lock().ends.get(&line.key).cloned();
            match self.call_batch(line, function, &batch) {
                Ok(gave) => return batch::share(gave, batch),
                Err(error) => {
                    // One query may have caused the failure, so it does not count against the file yet. Ends that were
                    // counted before still do.
                    self.state.lock().set_ends(&line.key, before);
                    tracing::debug!(pipeline = function.pipeline, %error, "a batch has failed: its queries run alone");
                }
            }
        }
        for waiting in batch.drain(..) {
            let alone = std::slice::from_ref(&waiting);
            let gave = match waiting.is_overdue() {
                true => Err(batch::overdue()),
                false => self.call_batch(line, function, alone),
            };
            waiting.reply(gave);
        }
    }

    /// Calls a function with the rows of the waiting queries.
    fn call_batch(
        &self,
        line: &Line,
        function: &Function,
        batch: &[WaitingCall],
    ) -> Result<CallOutput, QueryError> {
        let joined = batch::join(batch)?;
        let order = Order::Call(joined.inputs.clone(), None, Arc::clone(&joined.memory));
        let (rows, begun) = (batch::rows(batch), Instant::now());
        let gave = self.work(&line.key, function, order)?;
        let nothing = || QueryError::new(Code::Internal, "the call gave nothing");
        let gave = batch::checked(gave.ok_or_else(nothing)?, rows)?;
        self.lines.ran(line, rows, begun.elapsed());
        Ok(gave)
    }

    /// Carries an order out in a child of the file, for the holder of a place.
    fn work(
        &self,
        key: &Key,
        function: &Function,
        order: Order,
    ) -> Result<Option<CallOutput>, QueryError> {
        self.check_rest(key)?;
        let mut process = match self.idle(key) {
            Some(process) => process,
            None => self.start(key, function)?,
        };
        let limit = self.settings.time_limit;
        let result = match order {
            Order::Find => process.find(function, limit).map(|()| None),
            Order::Call(inputs, _held, memory) => {
                process.call(function, &inputs, &memory, limit).map(Some)
            }
        };
        match result {
            Ok(gave) => {
                self.keep(key, process);
                Ok(gave)
            }
            Err(CallFailure::Call(error)) => {
                self.keep(key, process);
                Err(error)
            }
            Err(CallFailure::Child(ill)) => Err(self.ended(key, process, ill, limit)),
        }
    }

    /// An idle child of the file.
    fn idle(&self, key: &Key) -> Option<Process> {
        loop {
            let mut state = self.state.lock();
            let at = state.idle.iter().rposition(|(of, _)| of == key)?;
            let (_, mut process) = state.idle.remove(at);
            if !process.has_ended() {
                return Some(process);
            }
            state.alive -= 1;
            drop(state);
            process.end();
        }
    }

    /// Starts a child, in place of another one if there is no room, and runs the file in it.
    fn start(&self, key: &Key, function: &Function) -> Result<Process, QueryError> {
        let mut state = self.state.lock();
        let is_full = state.alive >= self.settings.processes.max(1);
        let oldest = (is_full && !state.idle.is_empty()).then(|| state.idle.remove(0).1);
        state.alive += 1;
        state.alive -= usize::from(oldest.is_some());
        drop(state);
        if let Some(oldest) = oldest {
            oldest.end();
        }
        let started = Process::start(&self.settings.program, START);
        let mut process = started.map_err(|error| self.not_started(&error))?;
        match process.load(function, START) {
            Ok(()) => Ok(process),
            Err(CallFailure::Call(error)) => {
                Err(self.ended(key, process, ChildFailure::Said(error), START))
            }
            Err(CallFailure::Child(ill)) => Err(self.ended(key, process, ill, START)),
        }
    }

    fn not_started(&self, error: &io::Error) -> QueryError {
        self.state.lock().alive -= 1;
        let message = format!("the process of Python steps cannot be started: {error}");
        QueryError::new(Code::Unavailable, message).retry_after_ms(1000.0)
    }

    /// Keeps a child that has answered and waits for more.
    fn keep(&self, key: &Key, process: Process) {
        let mut state = self.state.lock();
        state.ends.remove(key);
        state.idle.push((key.clone(), process));
    }

    /// Ends a child that is no longer usable, and returns why.
    fn ended(&self, key: &Key, process: Process, ill: ChildFailure, limit: Duration) -> QueryError {
        let death = process.end();
        let error = match ill {
            ChildFailure::Said(error) => error,
            ChildFailure::Slow => {
                let ms = limit.as_millis();
                let message = format!("it took longer than `{ms}` ms, and was ended");
                QueryError::new(Code::TimeExceeded, message)
            }
            ChildFailure::Gone => gone(&death),
        };
        tracing::warn!(pipeline = key.pipeline, %error, "a process of Python steps was ended");
        let mut state = self.state.lock();
        state.alive -= 1;
        state.note_end(key);
        error
    }

    /// Refuses a file whose processes end again and again.
    fn check_rest(&self, key: &Key) -> Result<(), QueryError> {
        let ends = self.state.lock().ends.get(key).cloned();
        let Some(Ends { count, until }) = ends else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let ms = left.as_secs_f64() * 1e3;
        let message = format!(
            "its process has ended `{count}` times in a row, and is started again in `{ms:.0}` ms"
        );
        Err(QueryError::new(Code::Unavailable, message).retry_after_ms(ms.ceil()))
    }
}

/// Why a child has ended.
fn gone(death: &Death) -> QueryError {
    if death.ran_out_of_memory() {
        let message = "it needs more memory than `pipelines.python.memory_bytes`";
        return QueryError::new(Code::MemoryExceeded, message);
    }
    let last = death.said().trim().lines().last().unwrap_or_default();
    let last: String = last.chars().take(MOST_SAID).collect();
    let said = match last.is_empty() {
        true => String::new(),
        false => format!(": {last}"),
    };
    step_failed(format!("its process ended by {}{said}", death.how()))
}

// === impl State ===

impl State {
    fn set_ends(&mut self, key: &Key, ends: Option<Ends>) {
        match ends {
            Some(ends) => drop(self.ends.insert(key.clone(), ends)),
            None => drop(self.ends.remove(key)),
        }
    }

    fn note_end(&mut self, key: &Key) {
        let now = Instant::now();
        if self.ends.len() >= MOST_REMEMBERED {
            self.ends.retain(|_, ends| ends.until > now);
        }
        let ends = self.ends.entry(key.clone()).or_insert(Ends {
            count: 0,
            until: now,
        });
        ends.count = ends.count.saturating_add(1);
        // The first is started again at once.
        let rest = match ends.count {
            1 => Duration::ZERO,
            count => REST
                .saturating_mul(1 << (count - 2).min(16))
                .min(LONGEST_REST),
        };
        ends.until = now + rest;
    }
}

// === impl Key ===

impl Key {
    pub(crate) fn of(function: &Function) -> Self {
        Self {
            pipeline: function.pipeline.clone(),
            digest: function.digest,
        }
    }
}
