//! One thread per shard and one that ranks.
//!
//! Each loop is `step` until there is nothing to do, then a short spin, then sleep until somebody
//! hands something over or a timer is due.

use std::time::Duration;

use sextant_policies::schedule::{Delay, Nanos, QueueSpec, Request, Rule};

use crate::{
    clock::Clock,
    links::{Ticket, lane},
    ranker::Ranker,
    shard::{ModelShard, Outcome, ShardSettings},
    sync::{Arc, AtomicBool, Ordering, mpsc, thread},
    waker::Waker,
};

mod rank_thread;
mod shard_thread;

use rank_thread::RankLane;
pub use rank_thread::{Control, RankThread};
pub use shard_thread::{Message, ShardThread};

/// Empty steps before a thread sleeps.
const SPINS: u32 = 2_000;
/// Longest sleep: a clock that is not the system's may run faster.
const SLEEP_MOST: Duration = Duration::from_millis(1);

/// The shape of a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardedSettings {
    /// Delays to make room for.
    pub delay: Delay,
    /// Slots of the pool, numbered from 0; all are up and idle.
    pub slots: u32,
    /// Per shard the specs of its models, numbered from 0.
    pub models: Vec<Vec<QueueSpec>>,
}

/// Where a model lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The shard.
    pub shard: u32,
    /// Its number within the shard.
    pub model: u32,
}

/// Every part of a scheduler, not yet on threads.
#[derive(Debug)]
pub struct Parts<T, R: Rule> {
    /// One per shard.
    pub shards: Vec<ShardThread<T, R>>,
    /// The ranker.
    pub rank: RankThread,
    /// Where each shard's messages go.
    pub inboxes: Vec<Inbox<T>>,
    /// Where the ranker's go.
    pub control: mpsc::Sender<Control>,
    /// Wakes the ranker.
    pub rank_waker: Arc<Waker>,
}

/// Hands messages to a shard.
#[derive(Debug)]
pub struct Inbox<T> {
    sender: mpsc::Sender<Message<T>>,
    waker: Arc<Waker>,
}

/// A scheduler on threads.
#[derive(Debug)]
pub struct Sharded<T> {
    inboxes: Vec<Inbox<T>>,
    control: mpsc::Sender<Control>,
    rank_waker: Arc<Waker>,
    stopped: Arc<AtomicBool>,
    /// The shards' first, the ranker's last.
    threads: Vec<thread::JoinHandle<()>>,
}

/// Makes the parts of a scheduler.
pub fn assemble<T, R: Rule + Clone>(rule: &R, settings: &ShardedSettings) -> Parts<T, R> {
    let of_shard = ShardSettings {
        delay: settings.delay,
        slots: settings.slots,
    };
    let specs = settings.models.iter().flatten();
    let max_rows = specs.map(|spec| spec.max_rows.min(spec.latency.measured_rows()));
    let models = settings.models.iter().map(Vec::len).sum::<usize>() as u32;
    let ranker = Ranker::new(
        models,
        settings.slots,
        settings.delay,
        max_rows.max().unwrap_or(1),
    );
    let (control, controls) = mpsc::channel();
    let rank_waker = Arc::new(Waker::default());
    let mut parts = Parts {
        shards: Vec::new(),
        rank: RankThread::new(ranker, controls, Arc::clone(&rank_waker)),
        inboxes: Vec::new(),
        control,
        rank_waker,
    };
    for specs in &settings.models {
        let lane = lane(specs.len() as u32);
        let waker = Arc::new(Waker::default());
        let (sender, inbox) = mpsc::channel();
        parts.rank.add(
            RankLane {
                first: 0,
                reader: lane.reader,
                replied: lane.replied,
                granted: lane.granted,
                waker: Arc::clone(&waker),
                woken: false,
            },
            specs.len() as u32,
        );
        parts.inboxes.push(Inbox {
            sender,
            waker: Arc::clone(&waker),
        });
        let ends = (lane.writer, lane.replies);
        parts.shards.push(ShardThread {
            shard: ModelShard::new(rule.clone(), of_shard, specs.clone(), ends),
            grants: lane.grants,
            inbox,
            found: None,
            ranker: Arc::clone(&parts.rank_waker),
            waker,
            out: Vec::new(),
        });
    }
    parts
}

// === impl Inbox ===

impl<T> Inbox<T> {
    /// Hands a message over; back when the shard has stopped.
    ///
    /// # Errors
    /// The message.
    pub fn send(&self, message: Message<T>) -> Result<(), Message<T>> {
        self.sender.send(message).map_err(|error| error.0)?;
        self.waker.wake();
        Ok(())
    }
}

// === impl Sharded ===

impl<T: Send + 'static> Sharded<T> {
    /// Starts the threads. What a shard decides goes to its sink, on the shard's thread.
    pub fn start<R, S>(
        rule: &R,
        settings: &ShardedSettings,
        clock: &Arc<impl Clock>,
        mut sink: impl FnMut(u32) -> S,
    ) -> Self
    where
        R: Rule + Clone + 'static,
        S: FnMut(Outcome<T>) + Send + 'static,
    {
        let parts = assemble(rule, settings);
        let stopped = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (shard, state) in (0..).zip(parts.shards) {
            let (clock, stopped) = (Arc::clone(clock), Arc::clone(&stopped));
            let sink = sink(shard);
            threads.push(thread::spawn(move || {
                run_shard(state, sink, &*clock, &stopped);
            }));
        }
        let (clock, until) = (Arc::clone(clock), Arc::clone(&stopped));
        let rank = parts.rank;
        threads.push(thread::spawn(move || run_rank(rank, &*clock, &until)));
        Self {
            inboxes: parts.inboxes,
            control: parts.control,
            rank_waker: parts.rank_waker,
            stopped,
            threads,
        }
    }

    /// Hands a request in.
    ///
    /// # Errors
    /// The request, when the model's shard does not exist or has stopped.
    pub fn request(&self, place: Place, request: Request<T>) -> Result<(), Request<T>> {
        let Some(inbox) = self.inboxes.get(place.shard as usize) else {
            return Err(request);
        };
        let model = place.model;
        match inbox.send(Message::Request { model, request }) {
            Err(Message::Request { request, .. }) => Err(request),
            _ => Ok(()),
        }
    }

    /// A batch has left its slot. Of a stopped scheduler nothing happens.
    pub fn done(&self, place: Place, ticket: Ticket) {
        if let Some(inbox) = self.inboxes.get(place.shard as usize) {
            let model = place.model;
            // A shard that has stopped has no use for it.
            let _ = inbox.send(Message::Done { model, ticket });
        }
    }

    /// A slot has come or gone.
    pub fn control(&self, control: Control) {
        // A ranker that has stopped has no use for it.
        let _ = self.control.send(control);
        self.rank_waker.wake();
    }

    /// Stops the threads; whatever waits goes to the sinks as dropped. A panic of a thread goes on
    /// here.
    pub fn stop(mut self) {
        if let Some(panic) = self.join().into_iter().next() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl<T> Sharded<T> {
    /// Nobody hands anything in any more: this is the last handle.
    fn join(&mut self) -> Vec<Box<dyn std::any::Any + Send>> {
        self.stopped.store(true, Ordering::SeqCst);
        self.inboxes.iter().for_each(|inbox| inbox.waker.wake());
        self.rank_waker.wake();
        let threads = self.threads.drain(..);
        threads.filter_map(|thread| thread.join().err()).collect()
    }
}

impl<T> Drop for Sharded<T> {
    fn drop(&mut self) {
        // Who wants to know of a panic calls `stop`.
        self.join();
    }
}

fn run_shard<T, R: Rule>(
    mut state: ShardThread<T, R>,
    mut sink: impl FnMut(Outcome<T>),
    clock: &impl Clock,
    stopped: &AtomicBool,
) {
    let waker = Arc::clone(&state.waker);
    let mut idle = 0;
    while !stopped.load(Ordering::SeqCst) {
        if state.step(clock.now(), &mut sink) {
            idle = 0;
        } else if idle < SPINS {
            idle += 1;
            std::hint::spin_loop();
        } else {
            let most = sleep_most(state.next_timer(), clock);
            waker.sleep(Some(most), || state.has_work());
        }
    }
    state.close(&mut sink);
}

fn run_rank(mut state: RankThread, clock: &impl Clock, stopped: &AtomicBool) {
    let waker = Arc::clone(&state.waker);
    let mut idle = 0;
    while !stopped.load(Ordering::SeqCst) {
        if state.step(clock.now()) {
            idle = 0;
        } else if idle < SPINS {
            idle += 1;
            std::hint::spin_loop();
        } else {
            let most = sleep_most(state.next_timer(), clock);
            waker.sleep(Some(most), || state.has_work());
        }
    }
}

fn sleep_most(timer: Option<Nanos>, clock: &impl Clock) -> Duration {
    timer.map_or(SLEEP_MOST, |at| {
        Duration::from_nanos(at.saturating_sub(clock.now())).min(SLEEP_MOST)
    })
}
