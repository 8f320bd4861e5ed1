//! The LOAD thread: it runs one load of the device at a time, by `earliest`, each inside its window (Clockwork, section
//! 5.2).
//!
//! A load takes its pages when it begins: the dispatcher may send the unload that makes room for a load just before it.
//! If a load does not return, the task that waits for it gives it up. Another thread goes on with the next load, and
//! the pages are free when the stuck load returns.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Error, Interrupt, LoadRequest, LoadedModel, pages::PageShortage};
use sextant_rpc::WorkError;
use sextant_types::Variant;
use tokio::sync::oneshot;

use crate::{
    instance::panic_text,
    ledger::{Ledger, Reservation},
    pin,
    timed_queue::{TimedQueue, lock, wait, wait_until},
};

/// The name of the LOAD thread, and of threads that engines start during a load.
pub(crate) const NAME: &str = "sextant-load";

/// Owns the LOAD thread.
pub(crate) struct Turns {
    core: Arc<Core>,
}

struct Core {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: TimedQueue<Turn>,
    closed: bool,
    /// Whether the thread is in a call of an engine's `load`.
    busy: bool,
    /// Ends the running load.
    running: Option<Interrupt>,
    /// Number of threads that were given up. A thread with a lower number ends.
    given_up: u64,
    thread: Option<JoinHandle<()>>,
}

/// A load whose artefact has been fetched.
pub(crate) struct Turn {
    pub(crate) variant: Arc<Variant>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) request: LoadRequest,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) earliest: Instant,
    /// The latest time at which the engine may begin.
    pub(crate) latest: Option<Instant>,
    /// Ends the load, if the engine can do that.
    pub(crate) interrupt: Interrupt,
    /// Told when the load begins.
    pub(crate) began: oneshot::Sender<Instant>,
    pub(crate) reply: oneshot::Sender<Result<LoadResult, WorkError>>,
}

/// The result of a load.
pub(crate) struct LoadResult {
    pub(crate) model: Arc<dyn LoadedModel>,
    pub(crate) pages: Reservation,
    /// The time that the engine took.
    pub(crate) took: Duration,
}

impl Turns {
    pub(crate) fn start() -> io::Result<Self> {
        let core = Arc::new(Core {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = spawn(&core, 0)?;
        lock(&core.state).thread = Some(thread);
        Ok(Self { core })
    }

    /// Queues a load. After the shutdown it is answered at once.
    pub(crate) fn push(&self, turn: Turn) {
        let mut state = lock(&self.core.state);
        if state.closed {
            drop(state);
            turn.refuse(WorkError::ShuttingDown);
            return;
        }
        state.waiting.push(turn.earliest, turn);
        drop(state);
        self.core.changed.notify_one();
    }

    /// Gives up the thread that runs a load, and starts another.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.core.state);
        let number = state.given_up + 1;
        // The new thread looks for loads when the lock is free.
        match spawn(&self.core, number) {
            Ok(thread) => {
                state.given_up = number;
                state.busy = false;
                // The old thread is detached: it ends by itself if it returns.
                state.thread = Some(thread);
            }
            // Only the old thread exists: loads wait until it returns.
            Err(error) => tracing::error!(%error, "a stuck thread cannot be replaced"),
        }
    }

    /// Refuses new loads and answers those that have not begun.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.core.state);
        state.closed = true;
        let waiting = state.waiting.take();
        let running = state.running.take();
        drop(state);
        self.core.changed.notify_all();
        // Waiting for a lost runtime may take minutes.
        if let Some(running) = running {
            running.raise();
        }
        for turn in waiting.into_values() {
            turn.refuse(WorkError::ShuttingDown);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.close();
        let (thread, busy) = {
            let mut state = lock(&self.core.state);
            (state.thread.take(), state.busy)
        };
        // A load that still runs is not joined: it ends by itself.
        if !busy
            && let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the loading thread ended by a panic");
        }
    }
}

fn spawn(core: &Arc<Core>, number: u64) -> io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    let thread = thread::Builder::new()
        .name(NAME.to_owned())
        .stack_size(sextant_engine::STACK_BYTES);
    thread.spawn(move || {
        pin::wake_exactly();
        while let Some(turn) = core.next(number) {
            turn.run(&core);
        }
    })
}

// === impl Core ===

impl Core {
    /// The next load, when its window has opened. `None` after the shutdown, and for a thread that was given up.
    fn next(&self, number: u64) -> Option<Turn> {
        let mut state = lock(&self.state);
        loop {
            if state.given_up != number {
                return None;
            }
            state.busy = false;
            state.running = None;
            let Some(first) = state.waiting.first() else {
                if state.closed {
                    return None;
                }
                state = wait(&self.changed, state);
                continue;
            };
            let earliest = first.key().earliest;
            if earliest <= Instant::now() {
                let turn = first.remove();
                state.busy = true;
                state.running = Some(turn.interrupt.clone());
                return Some(turn);
            }
            state = wait_until(&self.state, &self.changed, state, earliest);
        }
    }
}

// === impl Turn ===

impl Turn {
    fn refuse(self, error: WorkError) {
        // The send fails if the load was called off.
        drop(self.reply.send(Err(error)));
    }

    fn run(self, core: &Core) {
        let began = Instant::now();
        if self.reply.is_closed() {
            return;
        }
        if self.latest.is_some_and(|latest| began > latest) {
            return self.refuse(WorkError::TooLate);
        }
        let pages = match self.ledger.reserve(&self.variant) {
            Ok(pages) => pages,
            Err(short) => {
                let error = no_memory(&self.variant, short, &self.ledger);
                return self.refuse(error);
            }
        };
        let Self {
            variant,
            engine,
            request,
            interrupt,
            ledger,
            began: told,
            reply,
            ..
        } = self;
        // The send fails if the caller has gone. The pages are free again when the model is dropped below.
        told.send(began).ok();
        let loaded = catch_unwind(AssertUnwindSafe(|| {
            engine.load_interruptible(&request, &interrupt)
        }));
        let loaded = loaded.unwrap_or_else(|panic| {
            let text = panic_text(&*panic);
            Err(Error::Failed(format!("the engine panicked: {text}")))
        });
        let opened = match loaded {
            Ok(model) => Ok(LoadResult {
                model,
                pages,
                took: began.elapsed(),
            }),
            Err(error) => {
                // The pages must be free before the caller hears of the failure.
                drop(pages);
                Err(error)
            }
        };
        let opened = opened.map_err(|error| {
            if interrupt.is_raised() && lock(&core.state).closed {
                return WorkError::ShuttingDown;
            }
            refused(&variant, &error, &ledger)
        });
        drop(reply.send(opened));
    }
}

/// The error of a failed load. A shortage of pages is not the variant's fault: a model that is measured on the device
/// occupies pages before the ledger counts them.
fn refused(variant: &Variant, error: &Error, ledger: &Ledger) -> WorkError {
    if let Error::OutOfMemory(shortage) = error
        && let Some(short) = shortage.pages()
    {
        return no_memory(variant, short, ledger);
    }
    WorkError::Failed {
        variant: variant.id.clone(),
        reason: error.to_string(),
    }
}

pub(crate) fn no_memory(variant: &Variant, short: PageShortage, ledger: &Ledger) -> WorkError {
    WorkError::NoMemory {
        variant: variant.id.clone(),
        needed: short.needed,
        free: short.free,
        page_bytes: ledger.pages().page_bytes,
    }
}
