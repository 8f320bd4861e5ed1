//! A source for a [`World`](sextant_simulator::World): the requests of all jobs on their way through the routers.
//!
//! Requests are sent as [`super::World`] sends them. Each job's router takes one request at a time, in the order of
//! arrival: on the way in, before the scheduler learns of the request, and on the way out. The end of a pass is known
//! when the request comes to the router. So only an answer that comes to the router before the next request can change
//! when that request reaches the scheduler.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Nanos, SECOND, Setting, law::MinuteRequest, metric::Record};
use sextant_simulator::{Arrival, Source};

/// The routers of all jobs; see the module.
pub(super) struct Routers<'a> {
    setting: &'a Setting,
    jobs: Vec<Router<'a>>,
    /// For each client: when the request was sent. The scheduler has the client's request, or the client is in
    /// `vacant`.
    sent: Vec<Nanos>,
    vacant: Vec<u32>,
}

/// The router of one job.
struct Router<'a> {
    setting: &'a Setting,
    emitter: Emitter<'a>,
    chance: ChaCha8Rng,
    /// When all requests that have come to it have passed.
    free_at: Nanos,
    /// Time of the next pass.
    pass: Nanos,
    /// When requests pass on the way in, and when they were sent; oldest first.
    passing: VecDeque<(Nanos, Nanos)>,
    record: Record,
}

/// The requests of one job, in order of time.
struct Emitter<'a> {
    setting: &'a Setting,
    job: usize,
    /// The next minute to begin.
    minute: usize,
    /// The next request of each minute that has begun. The requests of a minute may take longer than a minute.
    next: BinaryHeap<Reverse<MinuteRequest>>,
    gaps: ChaCha8Rng,
}

// === impl Routers ===

impl<'a> Routers<'a> {
    /// Before the first request.
    pub(super) fn new(setting: &'a Setting) -> Self {
        let jobs = 0..setting.rates.jobs();
        Self {
            setting,
            jobs: jobs.map(|job| Router::new(setting, job)).collect(),
            sent: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// The outcomes of each job's requests.
    pub(super) fn into_records(self) -> Vec<Record> {
        self.jobs.into_iter().map(|job| job.record).collect()
    }

    /// The time and the job of the request that reaches the scheduler next.
    fn first(&self) -> Option<(Nanos, usize)> {
        let jobs = self.jobs.iter().enumerate();
        let next = jobs.filter_map(|(at, job)| Some((job.next()?, at)));
        next.min()
    }

    fn end(&mut self, now: Nanos, job: u32, client: u32, failed: bool) {
        self.vacant.push(client);
        let sent = self.sent[client as usize];
        let job = &mut self.jobs[job as usize];
        let latency_ms = (job.leave(now) - sent) as f64 / 1e6;
        let target_ms = self.setting.target_ms;
        job.record.ended(sent, latency_ms, failed, target_ms);
    }
}

impl Source for Routers<'_> {
    fn peek(&mut self) -> Option<Nanos> {
        self.first().map(|(at, _)| at)
    }

    fn next(&mut self) -> Arrival {
        let (_, job) = self.first().expect("asked only when there is a next");
        let passed = self.jobs[job].arrive();
        let (at, sent) = passed.expect("the first has a request");
        let client = self.vacant.pop().unwrap_or_else(|| {
            self.sent.push(0);
            (self.sent.len() - 1) as u32
        });
        self.sent[client as usize] = sent;
        Arrival {
            at,
            model: job as u32,
            client,
        }
    }

    fn on_answer(&mut self, now: Nanos, model: u32, client: u32) {
        self.end(now, model, client, false);
    }

    fn on_drop(&mut self, now: Nanos, model: u32, client: u32) {
        self.end(now, model, client, true);
    }
}

// === impl Router ===

impl<'a> Router<'a> {
    fn new(setting: &'a Setting, job: usize) -> Self {
        let mut chance = generator(setting.seed ^ 0x5eed, job);
        Self {
            setting,
            emitter: Emitter::new(setting, job),
            free_at: 0,
            pass: setting.law.pass(&mut chance),
            chance,
            passing: VecDeque::new(),
            record: Record::default(),
        }
    }

    /// When its next request reaches the scheduler, unless an answer comes to the router before it.
    fn next(&self) -> Option<Nanos> {
        match self.passing.front() {
            Some((passed, _)) => Some(*passed),
            None => Some(self.emitter.peek()?.max(self.free_at) + self.pass),
        }
    }

    /// The next request has passed; returns when it passed, and when it was sent.
    fn arrive(&mut self) -> Option<(Nanos, Nanos)> {
        if self.passing.is_empty() {
            self.enter();
        }
        self.passing.pop_front()
    }

    /// An answer comes at `now`; returns when it has passed.
    fn leave(&mut self, now: Nanos) -> Nanos {
        while self.emitter.peek().is_some_and(|sent| sent <= now) {
            self.enter();
        }
        self.take(now)
    }

    /// The next request comes to the router.
    fn enter(&mut self) {
        if let Some(sent) = self.emitter.pop() {
            let passed = self.take(sent);
            self.passing.push_back((passed, sent));
        }
    }

    fn take(&mut self, from: Nanos) -> Nanos {
        self.free_at = self.free_at.max(from) + self.pass;
        self.pass = self.setting.law.pass(&mut self.chance);
        self.free_at
    }
}

// === impl Emitter ===

impl<'a> Emitter<'a> {
    fn new(setting: &'a Setting, job: usize) -> Self {
        let mut emitter = Self {
            setting,
            job,
            minute: 0,
            next: BinaryHeap::new(),
            gaps: generator(setting.seed, job),
        };
        emitter.begin();
        emitter
    }

    /// When the next request is sent.
    fn peek(&self) -> Option<Nanos> {
        self.next.peek().map(|Reverse(sent)| sent.at)
    }

    fn pop(&mut self) -> Option<Nanos> {
        let Reverse(sent) = self.next.pop()?;
        let count = self.setting.rates.count(sent.minute, self.job);
        let next = self.setting.law.next(sent, count, &mut self.gaps);
        self.next.extend(next.map(Reverse));
        self.begin();
        Some(sent.at)
    }

    /// Begins minutes until the next request is known.
    fn begin(&mut self) {
        while self.minute < self.setting.rates.minutes() {
            let at = self.minute as Nanos * 60 * SECOND;
            if self.peek().is_some_and(|next| next < at) {
                return;
            }
            let (minute, number) = (self.minute, 0);
            if self.setting.rates.count(minute, self.job) > 0 {
                self.next
                    .push(Reverse(MinuteRequest { at, minute, number }));
            }
            self.minute += 1;
        }
    }
}

/// A generator for each job, so that one job's draws do not change another's.
fn generator(seed: u64, job: usize) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(job as u64 + 1);
    random
}
