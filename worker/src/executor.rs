//! The threads that run batches: EXEC, IO and their watchdog.
//!
//! A CPU device has one EXEC thread for each of its cores. A device with an executor of its own has exactly one EXEC
//! thread, and an IO thread beside it. The watchdog times every call of an engine. It ends a run that is past its limit
//! if the engine can do that: then only that run fails. It gives up a run that cannot be ended: it answers the batch,
//! fails the instance and starts another thread in place of the stuck one. If the stuck thread returns, its outputs are
//! discarded and it ends. Until then it holds the instance and thereby the pages.

mod batch;
mod open;
mod queue;
mod run;
mod threads;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sextant_rpc::{Infer, InferError};
use sextant_types::VariantId;

use self::{
    open::Open,
    queue::{Batch, Input, Queue},
    threads::{Role, Threads},
};
use crate::{Config, instance::Instance, pin::Pins, shared::Shared, timed_queue::lock};

/// Shortest time between two looks of the watchdog.
const SHORTEST_WATCH: Duration = Duration::from_millis(1);

/// Longest time between two looks of the watchdog, see [`SHORTEST_WATCH`].
const LONGEST_WATCH: Duration = Duration::from_secs(1);

/// Owns the threads. Dropping it answers the waiting batches and joins the threads.
pub(crate) struct Executor {
    core: Arc<Core>,
    watch: Option<JoinHandle<()>>,
}

/// What the threads share.
struct Core {
    config: Config,
    shared: Arc<Shared>,
    queue: Queue,
    threads: Threads,
    pins: Pins,
    stopped: Mutex<bool>,
    stopping: Condvar,
}

impl Executor {
    /// Starts the threads. `dedicated` says that the device has an executor of its own.
    pub(crate) fn start(
        config: &Config,
        dedicated: bool,
        shared: &Arc<Shared>,
    ) -> io::Result<Self> {
        let core = Arc::new(Core {
            config: config.clone(),
            shared: Arc::clone(shared),
            queue: Queue::new(dedicated),
            threads: Threads::default(),
            pins: Pins::new(config.pin.as_deref()),
            stopped: Mutex::default(),
            stopping: Condvar::new(),
        });
        // If the next thread cannot be started, the drop ends the threads that were started.
        let mut executor = Self { core, watch: None };
        let exec_threads = if dedicated { 1 } else { config.cores.max(1) };
        for number in 0..usize::from(exec_threads) {
            Threads::start(&executor.core, Role::Exec(number))?;
        }
        if dedicated {
            Threads::start(&executor.core, Role::Io)?;
        }
        let core = Arc::clone(&executor.core);
        let watch = thread::Builder::new().name("sextant-watch".to_owned());
        executor.watch = Some(watch.spawn(move || core.watch())?);
        Ok(executor)
    }

    /// Queues a batch. After the shutdown it answers the batch at once.
    pub(crate) fn submit(&self, infer: Infer) {
        let Some((open, parts)) = Open::accept(infer, &self.core.shared) else {
            return;
        };
        if open.earliest > open.arrived + self.core.config.horizon {
            open.refuse(InferError::TooEarly);
            return;
        }
        let input = Input::parts(parts);
        if let Err(batch) = self.core.queue.push(Batch { open, input }) {
            batch.open.refuse(InferError::ShuttingDown);
        }
    }

    /// Lets waiting batches take their inputs to a variant that has just been loaded.
    pub(crate) fn loaded(&self, variant: &VariantId) {
        self.core.queue.loaded(variant);
    }

    /// Makes waiting batches drop their handles of an instance that has left.
    pub(crate) fn unstage(&self, instance: &Arc<Instance>) {
        self.core.queue.unstage(instance);
    }

    /// Whether a batch of the variant waits or may be about to begin.
    pub(crate) fn awaits(&self, variant: &VariantId) -> bool {
        self.core.queue.awaits(variant)
    }

    /// The cores that the threads that run batches keep to.
    pub(crate) fn pins(&self) -> &Pins {
        &self.core.pins
    }

    /// Refuses new batches and answers those that have not begun.
    pub(crate) fn close(&self) {
        queue::refuse_all(self.core.queue.close());
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
        *lock(&self.core.stopped) = true;
        self.core.stopping.notify_all();
        let Some(watch) = self.watch.take() else {
            return;
        };
        // A result handler may hold the last handle of the executor. A thread must not wait for itself.
        if watch.thread().id() == thread::current().id() || self.core.threads.is_member() {
            return;
        }
        // The watchdog returns when every thread has ended or is given up as stuck.
        let mut ended = watch.join().is_ok();
        for thread in self.core.threads.take() {
            ended &= thread.join().is_ok();
        }
        if !ended {
            tracing::error!("an executor thread ended by a panic");
        }
    }
}

// === impl Core ===

impl Core {
    /// Looks for threads that are past their limits until the shutdown, and then until all threads have ended.
    fn watch(self: &Arc<Self>) {
        let floor = self.config.watchdog.batch_floor;
        let period = (floor / 10).clamp(SHORTEST_WATCH, LONGEST_WATCH);
        loop {
            let stopped = lock(&self.stopped);
            if *stopped && self.threads.has_ended() {
                return;
            }
            let waited = self.stopping.wait_timeout(stopped, period);
            let stopped = *waited.unwrap_or_else(PoisonError::into_inner).0;
            Threads::replace_stuck(self, Instant::now(), stopped);
        }
    }

    /// Tells the watchdog that a thread has ended.
    fn wake_watch(&self) {
        drop(lock(&self.stopped));
        self.stopping.notify_all();
    }
}
