//! Runs requests first come first served under a configuration that may change at any time.
//!
//! One thread for each core, kept to it. A request is admitted when fewer than the service degree
//! run and as many cores as it takes threads are free; it is called on the thread of the first of
//! them. Whoever changes the state wakes the one thread that could admit next, so nothing polls.
//!
//! A new configuration has a number one higher and counts for whatever is admitted from then on.
//! What runs keeps the cores it was granted, and nothing is admitted onto cores that are granted, so
//! a narrow and a wide request never share one. Nothing is loaded, dropped or run again.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use sextant_policies::parallelism::{Backlog, Configuration};
use sextant_types::{NamedTensor, Tensor};

use super::{Error, Handles, affinity::keep_to};

/// How a runner runs.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    /// The cores; one thread keeps to each.
    pub cores: Vec<usize>,
    /// What it begins with.
    pub configuration: Configuration,
    /// How long an idle thread spins before a request whose time is known arrives, in place of
    /// sleeping to the end; a sleep ends some tens of microseconds late.
    pub spin: Duration,
}

/// One request.
pub struct Request {
    /// In the signature's order.
    pub inputs: Arc<Vec<NamedTensor>>,
    /// When it arrives: it starts no earlier. Those behind it wait for it.
    pub arrival: Instant,
    /// Called exactly once, on the thread that ran it.
    pub done: Box<dyn FnOnce(Completed) + Send>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Completed {
    /// In the signature's order.
    pub outputs: Result<Vec<Tensor>, RunError>,
    /// As the request had it.
    pub arrival: Instant,
    /// When it was admitted; the arrival for one that was not.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// What it ran under.
    pub configuration: Configuration,
    /// The number of that configuration, 0 for the first.
    pub version: u64,
}

/// Why a request has no outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// The engine failed, or panicked.
    Engine(sextant_engine::Error),
    /// The runner was closed before its turn came.
    Closed,
}

/// What a runner has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests that came.
    pub submitted: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Configurations that were set, the first one not counted.
    pub switches: u64,
    /// Most requests that ran side by side.
    pub most_running: usize,
    /// Most threads that were granted at once.
    pub most_threads: usize,
}

/// Runs requests. Dropping it answers what waits, and ends when what runs has.
pub struct Runner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    handles: Handles,
    options: RunnerOptions,
    state: Mutex<State>,
    /// One for each thread.
    wake: Vec<Condvar>,
}

struct State {
    queue: VecDeque<Request>,
    configuration: Configuration,
    version: u64,
    /// Which cores are not granted.
    free: Vec<bool>,
    running: usize,
    closed: bool,
    counters: Counters,
}

/// Cores of a running request, and what it was admitted under.
struct Grant {
    cores: Vec<usize>,
    configuration: Configuration,
    version: u64,
    started: Instant,
}

/// What a thread does next.
enum Turn {
    Run(Request, Grant),
    /// It is its turn, but the request is not there yet.
    Until(Instant),
    Wait,
    End,
}

// === impl Runner ===

impl Runner {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there are no cores, the configuration does not fit them or its model is not loaded, or
    /// no thread can be started.
    pub fn start(handles: Handles, options: RunnerOptions) -> Result<Self, Error> {
        let cores = options.cores.len();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                configuration: options.configuration,
                version: 0,
                free: vec![true; cores],
                running: 0,
                closed: false,
                counters: Counters::default(),
            }),
            wake: (0..cores).map(|_| Condvar::new()).collect(),
            handles,
            options,
        });
        shared.check(shared.options.configuration)?;
        let mut runner = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..cores {
            let shared = Arc::clone(&runner.shared);
            let thread = std::thread::Builder::new()
                .name(format!("sextant-run-{number}"))
                .spawn(move || shared.run(number))?;
            runner.threads.push(thread);
        }
        Ok(runner)
    }

    /// Queues a request; after the closing it is answered at once.
    pub fn submit(&self, request: Request) {
        let mut state = self.shared.lock();
        state.counters.submitted += 1;
        if state.closed {
            state.counters.answered += 1;
            let (configuration, version) = (state.configuration, state.version);
            drop(state);
            refuse(request, configuration, version);
            return;
        }
        state.queue.push_back(request);
        self.shared.wake_next(&state);
    }

    /// Sets the configuration for whatever is admitted from now on; the number it got.
    ///
    /// # Errors
    /// When it does not fit the cores, spreads over machines, or its model is not loaded.
    pub fn configure(&self, configuration: Configuration) -> Result<u64, Error> {
        self.shared.check(configuration)?;
        let mut state = self.shared.lock();
        if state.configuration != configuration {
            state.configuration = configuration;
            state.version += 1;
            state.counters.switches += 1;
            self.shared.wake_next(&state);
        }
        Ok(state.version)
    }

    /// The configuration for whatever is admitted now.
    pub fn configuration(&self) -> Configuration {
        self.shared.lock().configuration
    }

    /// Requests that run, and those that have arrived and wait.
    pub fn backlog(&self) -> Backlog {
        let (state, now) = (self.shared.lock(), Instant::now());
        Backlog {
            running: state.running,
            queued: state
                .queue
                .partition_point(|request| request.arrival <= now),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }

    /// Answers what waits with [`RunError::Closed`]; what runs goes on to its end.
    pub fn close(&self) {
        let (waiting, configuration, version) = {
            let mut state = self.shared.lock();
            state.closed = true;
            let waiting = std::mem::take(&mut state.queue);
            state.counters.answered += waiting.len() as u64;
            (waiting, state.configuration, state.version)
        };
        self.shared.wake.iter().for_each(Condvar::notify_one);
        for request in waiting {
            refuse(request, configuration, version);
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.close();
        let this = std::thread::current().id();
        // A result handler may hold the last handle: a thread never joins itself.
        for thread in self.threads.drain(..).filter(|it| it.thread().id() != this) {
            if thread.join().is_err() {
                tracing::error!("a runner's thread ended by a panic");
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn check(&self, configuration: Configuration) -> Result<(), Error> {
        let Configuration {
            service,
            inter,
            intra,
        } = configuration;
        let cores = self.options.cores.len();
        let fits = configuration.threads() as usize <= cores;
        if service == 0 || intra == 0 || inter != 1 || !fits {
            return Err(Error::Invalid(format!(
                "configuration {configuration} does not fit `{cores}` cores of one machine"
            )));
        }
        match self.handles.get(intra) {
            Some(_) => Ok(()),
            None => Err(Error::Invalid(format!(
                "the model is not loaded on `{intra}` threads"
            ))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread that could admit the next request, if any could.
    fn wake_next(&self, state: &State) {
        if let Some(number) = state.designated().filter(|_| !state.queue.is_empty()) {
            self.wake[number].notify_one();
        }
    }

    fn run(&self, number: usize) {
        keep_to(&self.options.cores[number..=number]);
        let mut state = self.lock();
        loop {
            state = match state.turn(number) {
                Turn::Run(request, grant) => {
                    self.wake_next(&state);
                    drop(state);
                    self.serve(request, &grant)
                }
                Turn::Until(arrival) => self.wait_until(state, number, arrival),
                Turn::Wait => self.wake[number]
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Turn::End => return,
            };
        }
    }

    fn wait_until<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        number: usize,
        arrival: Instant,
    ) -> MutexGuard<'a, State> {
        let left = arrival.saturating_duration_since(Instant::now());
        if left > self.options.spin {
            let waited = self.wake[number].wait_timeout(state, left - self.options.spin);
            return waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        while Instant::now() < arrival {
            std::hint::spin_loop();
        }
        self.lock()
    }

    fn serve(&self, request: Request, grant: &Grant) -> MutexGuard<'_, State> {
        let run = || match self.handles.get(grant.configuration.intra) {
            Some(model) => model.run(&request.inputs),
            None => unreachable!("configurations are checked when they are set"),
        };
        let outputs = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(super::handles::ended()))
            .map_err(RunError::Engine);
        let completed = Completed {
            outputs,
            arrival: request.arrival,
            started: grant.started,
            ended: Instant::now(),
            configuration: grant.configuration,
            version: grant.version,
        };
        {
            let mut state = self.lock();
            state.release(grant);
            state.counters.answered += 1;
            self.wake_next(&state);
        }
        // Its cores are free by now, but this thread is the one to admit onto the first of them: the
        // handler is short.
        if catch_unwind(AssertUnwindSafe(|| (request.done)(completed))).is_err() {
            tracing::error!("a result handler panicked");
        }
        self.lock()
    }
}

fn refuse(request: Request, configuration: Configuration, version: u64) {
    let now = Instant::now();
    (request.done)(Completed {
        outputs: Err(RunError::Closed),
        arrival: request.arrival,
        started: request.arrival,
        ended: now,
        configuration,
        version,
    });
}

// === impl State ===

impl State {
    /// The first cores that a request would be granted now.
    fn grantable(&self) -> Option<Vec<usize>> {
        let intra = usize::from(self.configuration.intra);
        let free = (0..self.free.len()).filter(|core| self.free[*core]);
        let cores: Vec<usize> = free.take(intra).collect();
        let room = self.running < usize::from(self.configuration.service);
        (room && cores.len() == intra).then_some(cores)
    }

    /// The thread whose turn it is to admit.
    fn designated(&self) -> Option<usize> {
        self.grantable()?.first().copied()
    }

    fn turn(&mut self, number: usize) -> Turn {
        if self.closed {
            return Turn::End;
        }
        let cores = self.grantable().filter(|cores| cores[0] == number);
        let (Some(cores), Some(head)) = (cores, self.queue.front()) else {
            return Turn::Wait;
        };
        let now = Instant::now();
        if head.arrival > now {
            return Turn::Until(head.arrival);
        }
        match self.queue.pop_front() {
            Some(request) => Turn::Run(request, self.grant(cores, now)),
            None => Turn::Wait,
        }
    }

    fn grant(&mut self, cores: Vec<usize>, started: Instant) -> Grant {
        cores.iter().for_each(|core| self.free[*core] = false);
        self.running += 1;
        let threads = self.free.iter().filter(|free| !**free).count();
        self.counters.most_running = self.counters.most_running.max(self.running);
        self.counters.most_threads = self.counters.most_threads.max(threads);
        Grant {
            cores,
            configuration: self.configuration,
            version: self.version,
            started,
        }
    }

    fn release(&mut self, grant: &Grant) {
        grant.cores.iter().for_each(|core| self.free[*core] = true);
        self.running -= 1;
    }
}
