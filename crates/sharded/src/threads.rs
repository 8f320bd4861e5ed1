//! One thread per shard and one that ranks.
//!
//! Each loop is `step` until there is nothing to do, then a short spin, then sleep until somebody
//! hands something over or a timer is due.

use std::time::Duration;

use sextant_policies::schedule::{Delay, DropReason, Nanos, QueueSpec, Request, Rule};

use crate::{
    board::Reader,
    clock::Clock,
    links::{Grant, Reply, Ticket, lane},
    ranker::{Placed, Ranker},
    ring::{Receiver, Sender},
    shard::{ModelShard, Outcome, ShardSettings},
    sync::{Arc, AtomicBool, Ordering, mpsc, thread},
    waker::Waker,
};

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

/// What is handed to a shard from outside.
#[derive(Debug)]
pub enum Message<T> {
    /// A request arrives.
    Request {
        /// Its model, within the shard.
        model: u32,
        /// The request.
        request: Request<T>,
    },
    /// A batch has left its slot.
    Done {
        /// Its model, within the shard.
        model: u32,
        /// Which batch.
        ticket: Ticket,
    },
}

/// What is handed to the ranker from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// A slot is up, with nothing on it.
    Up(u32),
    /// A slot is gone; what became of its batches is the caller's to decide.
    Down(u32),
}

/// The state of a shard's thread.
#[derive(Debug)]
pub struct ShardThread<T, R: Rule> {
    shard: ModelShard<T, R>,
    grants: Receiver<3>,
    inbox: mpsc::Receiver<Message<T>>,
    /// A message that was found when looking whether there is one.
    found: Option<Message<T>>,
    ranker: Arc<Waker>,
    waker: Arc<Waker>,
    out: Vec<Outcome<T>>,
}

/// The state of the thread that ranks.
#[derive(Debug)]
pub struct RankThread {
    ranker: Ranker,
    lanes: Vec<RankLane>,
    /// By the ranker's number of a model.
    places: Vec<Place>,
    control: mpsc::Receiver<Control>,
    found: Option<Control>,
    waker: Arc<Waker>,
    grants: Vec<Grant>,
    operations: u64,
}

#[derive(Debug)]
struct RankLane {
    /// The ranker's number of the lane's first model.
    first: u32,
    reader: Reader,
    replied: Receiver<3>,
    granted: Sender<3>,
    waker: Arc<Waker>,
    woken: bool,
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
    let sharers = settings.models.iter().map(Vec::len).sum::<usize>() as u32;
    let of_shard = ShardSettings {
        delay: settings.delay,
        slots: settings.slots,
        sharers,
    };
    let specs = settings.models.iter().flatten();
    let max_rows = specs.map(|spec| spec.max_rows.min(spec.latency.measured_rows()));
    let ranker = Ranker::new(
        sharers,
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

// === impl ShardThread ===

impl<T, R: Rule> ShardThread<T, R> {
    /// Messages that are taken in before grants and timers are looked at again.
    const BURST: usize = 64;

    /// Does everything that there is to do now, at most a burst of messages; tells whether there
    /// was something. Never waits.
    pub fn step(&mut self, now: Nanos, sink: &mut impl FnMut(Outcome<T>)) -> bool {
        let mut busy = false;
        while let Some(words) = self.grants.receive() {
            busy = true;
            let grant = Grant::from_words(words);
            self.shard.on_grant(now, grant, &mut self.out);
        }
        if self.shard.next_timer().is_some_and(|at| at <= now) {
            busy = true;
            self.shard.on_timer(now, &mut self.out);
        }
        for _ in 0..Self::BURST {
            let found = self.found.take();
            let Some(message) = found.or_else(|| self.inbox.try_recv().ok()) else {
                break;
            };
            busy = true;
            self.on_message(now, message);
        }
        busy |= self.pass_on(sink);
        busy
    }

    /// Takes a message in at once, for those who drive a shard without its inbox. What comes of it
    /// is passed on with the next [`Self::step`].
    pub fn on_message(&mut self, now: Nanos, message: Message<T>) {
        match message {
            Message::Request { model, request } => {
                self.shard.on_request(now, model, request, &mut self.out);
            }
            Message::Done { model, ticket } => self.shard.on_done(model, ticket),
        }
    }

    /// When the next step is worth it if nothing is handed over before.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.shard.next_timer()
    }

    /// Whether something was handed over.
    pub fn has_work(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.inbox.try_recv().ok();
        }
        self.found.is_some() || !self.grants.is_empty()
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.shard.waiting()
    }

    /// Hands back every request, waiting or not yet taken in.
    pub fn close(&mut self, sink: &mut impl FnMut(Outcome<T>)) {
        let found = self.found.take();
        for message in found.into_iter().chain(self.inbox.try_iter()) {
            if let Message::Request { model, request } = message {
                self.out.push(Outcome::Drop {
                    model,
                    request,
                    reason: DropReason::Gone,
                });
            }
        }
        self.shard.clear(&mut self.out);
        self.pass_on(sink);
    }

    fn pass_on(&mut self, sink: &mut impl FnMut(Outcome<T>)) -> bool {
        let flushed = self.shard.flush();
        if self.shard.take_told() {
            self.ranker.wake();
        }
        self.out.drain(..).for_each(sink);
        !flushed
    }
}

// === impl RankThread ===

impl RankThread {
    fn new(ranker: Ranker, control: mpsc::Receiver<Control>, waker: Arc<Waker>) -> Self {
        Self {
            ranker,
            lanes: Vec::new(),
            places: Vec::new(),
            control,
            found: None,
            waker,
            grants: Vec::new(),
            operations: 0,
        }
    }

    fn add(&mut self, mut lane: RankLane, models: u32) {
        let shard = self.lanes.len() as u32;
        lane.first = self.places.len() as u32;
        self.lanes.push(lane);
        let places = (0..models).map(|model| Place { shard, model });
        self.places.extend(places);
    }

    /// Does everything that there is to do now; tells whether there was something. Never waits.
    pub fn step(&mut self, now: Nanos) -> bool {
        let before = self.operations;
        let found = self.found.take();
        for control in found.into_iter().chain(self.control.try_iter()) {
            self.operations += 1;
            match control {
                Control::Up(slot) => self.ranker.on_up(now, slot, &mut self.grants),
                Control::Down(slot) => self.ranker.on_down(slot),
            }
        }
        for lane in &mut self.lanes {
            while let Some(words) = lane.replied.receive() {
                let (model, ticket, reply) = Reply::from_words(words);
                let latest = match reply {
                    Reply::Done => None,
                    Reply::Used { .. } | Reply::Unused { .. } => lane.reader.latest(model),
                };
                let reply = (lane.first + model, ticket, reply);
                self.ranker.on_reply(now, reply, latest, &mut self.grants);
                self.operations += 1;
            }
            let (ranker, grants, operations) =
                (&mut self.ranker, &mut self.grants, &mut self.operations);
            let first = lane.first;
            lane.reader.drain(|model, candidate| {
                ranker.on_candidate(now, first + model, candidate, grants);
                *operations += 1;
            });
        }
        if self.ranker.next_timer().is_some_and(|at| at <= now) {
            self.operations += 1;
            self.ranker.on_timer(now, &mut self.grants);
        }
        self.pass_on();
        self.operations > before
    }

    /// When the next step is worth it if nothing is handed over before.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.ranker.next_timer()
    }

    /// Whether something was handed over.
    pub fn has_work(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.control.try_recv().ok();
        }
        let idle = |lane: &RankLane| lane.replied.is_empty() && lane.reader.is_empty();
        self.found.is_some() || !self.lanes.iter().all(idle)
    }

    /// What is known of a slot.
    pub fn placed(&self, slot: u32) -> Placed {
        self.ranker.placed(slot)
    }

    /// Candidates, replies, timers and controls handled so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    fn pass_on(&mut self) {
        for mut grant in self.grants.drain(..) {
            let Place { shard, model } = self.places[grant.model as usize];
            grant.model = model;
            let lane = &mut self.lanes[shard as usize];
            let sent = lane.granted.send(grant.words());
            assert!(sent, "one grant per model at a time, and room for as many");
            lane.woken = true;
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.woken) {
            lane.woken = false;
            lane.waker.wake();
        }
    }
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
                run_shard(state, sink, &*clock, &stopped)
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
        for panic in self.join() {
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
