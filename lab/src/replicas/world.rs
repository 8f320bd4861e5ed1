//! The simulation: the clock and the events.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sextant_scaling::autoscale::{Autoscaler, Policy};

use super::{
    Law, Nanos, Rates, Report, SECOND,
    cluster::{Executor, Start},
    job::{Job, Request},
    law::MinuteRequest,
    metric::{Record, report},
    seconds,
    watch::{TICK, Watch},
};

/// Time between two checks for idle workers, and between two attempts to get processors.
const CHECK: Nanos = 5 * SECOND;

/// Start time of a replica on a worker that its job has.
const HOT: Nanos = 3 * SECOND;

/// Start time of a replica on a new worker.
const COLD: Nanos = 35 * SECOND;

/// Time that a job is busy with ending replicas.
const REMOVAL: Nanos = 3 * SECOND;

/// Most replicas of a job.
const MOST: u32 = 100;

/// The setting of a simulation.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The rates of requests.
    pub rates: Rates,
    /// Processors.
    pub processors: u32,
    /// Initial replicas of each job; `None` for the number that the policy chooses.
    pub initial: Option<u32>,
    /// How long things take.
    pub law: Law,
    /// Most requests that may wait in a job's queue.
    pub queue: usize,
    /// Latency target, ms.
    pub target_ms: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Events. Events at the same time are ordered like this, because a free processor or a busy job depends on the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A minute begins.
    Minute(usize),
    /// A request of an emitter comes: job, minute, number.
    Arrive(usize, usize, u32),
    Routed(usize),
    Served(usize, u32),
    Ready(usize),
    Tick,
    Check,
    Retry(usize),
    Act(usize),
    Free(usize),
}

/// A change that is attempted.
#[derive(Debug, Clone, Copy)]
struct Trial {
    job: usize,
    target: Target,
    /// Number of attempts left, this one included.
    left: u8,
}

/// The desired number of replicas of a job.
#[derive(Debug, Clone, Copy)]
enum Target {
    Of(u32),
    /// This many more than were asked for last.
    More(u32),
}

/// A run.
pub struct World {
    setting: Setting,
    autoscaler: Box<dyn Autoscaler>,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, Event, u64)>>,
    scheduled: u64,
    jobs: Vec<Job>,
    executors: Vec<Executor>,
    watches: Vec<Watch>,
    records: Vec<Record>,
    free: u32,
    /// Changes that are tried again at the next tick.
    pending: Vec<Trial>,
    gaps: ChaCha8Rng,
    chance: ChaCha8Rng,
    replica_seconds: f64,
    counted: Nanos,
    changes: Vec<(f64, usize, u32)>,
}

// === impl World ===

impl World {
    /// The world at the beginning.
    pub fn new(setting: Setting, policy: Policy) -> Self {
        let autoscaler = policy.build(&sextant_scaling::autoscale::Setting {
            processors: setting.processors,
            target_ms: setting.target_ms,
            service: setting.law.service(),
        });
        let count = setting.rates.jobs();
        let initial = setting.initial.unwrap_or_else(|| autoscaler.initial(count));
        let taken = initial.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let mut world = Self {
            free: setting.processors.saturating_sub(taken),
            gaps: ChaCha8Rng::seed_from_u64(setting.seed),
            chance: ChaCha8Rng::seed_from_u64(setting.seed ^ 0x5eed),
            setting,
            autoscaler,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            jobs: (0..count).map(|_| Job::default()).collect(),
            executors: (0..count).map(|_| Executor::new(initial)).collect(),
            watches: (0..count).map(|_| Watch::default()).collect(),
            records: vec![Record::default(); count],
            pending: Vec::new(),
            replica_seconds: 0.0,
            counted: 0,
            changes: Vec::new(),
        };
        for job in 0..count {
            (0..initial).for_each(|_| world.join(job));
            world.watches[job].desired = initial;
        }
        world
    }

    /// Plays all minutes, and lets all requests end.
    pub fn run(mut self) -> Report {
        let minutes = self.setting.rates.minutes();
        let end = minutes as Nanos * 60 * SECOND;
        for minute in 0..minutes {
            self.at(minute as Nanos * 60 * SECOND, Event::Minute(minute));
        }
        self.at(TICK, Event::Tick);
        self.at(CHECK, Event::Check);
        while let Some(Reverse((at, event, _))) = self.events.pop() {
            self.now = at;
            // After the last minute, nobody decides any more.
            match event {
                Event::Tick | Event::Check | Event::Retry(_) if at > end => {}
                event => self.play(event),
            }
        }
        self.count_replicas(end);
        let mean = self.replica_seconds / seconds(end.max(1));
        let target_ms = self.setting.target_ms;
        report(self.records, minutes, target_ms, (mean, self.changes))
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time, event, self.scheduled)));
    }

    fn after(&mut self, time: Nanos, event: Event) {
        self.at(self.now + time, event);
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Minute(minute) => {
                for job in 0..self.jobs.len() {
                    if self.setting.rates.count(minute, job) > 0 {
                        self.arrive(job, minute, 0);
                    }
                }
            }
            Event::Arrive(job, minute, number) => self.arrive(job, minute, number),
            Event::Routed(job) => self.routed(job),
            Event::Served(job, replica) => {
                let (request, runs) = self.jobs[job].served(replica);
                if runs {
                    self.serve(job, replica);
                }
                if let Some(request) = request {
                    self.route_back(job, request, false);
                }
                self.dispatch(job);
            }
            Event::Ready(job) => {
                self.join(job);
                self.executors[job].starting -= 1;
                let executor = &self.executors[job];
                if executor.starting == 0 && executor.missing == 0 {
                    self.after(0, Event::Free(job));
                }
            }
            Event::Tick => {
                self.tick();
                self.after(TICK, Event::Tick);
            }
            Event::Check => {
                for executor in &mut self.executors {
                    self.free += executor.sweep(self.now);
                }
                self.after(CHECK, Event::Check);
            }
            Event::Retry(job) => self.start(job),
            Event::Act(job) => self.act(job),
            Event::Free(job) => {
                self.executors[job].end();
                self.act(job);
            }
        }
    }

    fn arrive(&mut self, job: usize, minute: usize, number: u32) {
        self.watches[job].arrived(self.now);
        let request = Request {
            arrived: self.now,
            failed: false,
            outward: false,
        };
        if self.jobs[job].route(request) {
            self.pass(job);
        }
        let count = self.setting.rates.count(minute, job);
        let at = self.now;
        let sent = MinuteRequest { at, minute, number };
        if let Some(next) = self.setting.law.next(sent, count, &mut self.gaps) {
            self.at(next.at, Event::Arrive(job, minute, next.number));
        }
    }

    fn routed(&mut self, job: usize) {
        let (request, more) = self.jobs[job].routed();
        if more {
            self.pass(job);
        }
        let Some(request) = request else { return };
        if request.outward {
            return self.end(job, request);
        }
        match self.jobs[job].admit(request, self.setting.queue) {
            Ok(()) if !self.jobs[job].is_held() => self.dispatch(job),
            Ok(()) => {}
            Err(request) => self.route_back(job, request, true),
        }
    }

    fn route_back(&mut self, job: usize, request: Request, failed: bool) {
        let request = Request {
            failed,
            outward: true,
            ..request
        };
        if self.jobs[job].route(request) {
            self.pass(job);
        }
    }

    fn end(&mut self, job: usize, request: Request) {
        let latency_ms = (self.now - request.arrived) as f64 / 1e6;
        let target_ms = self.setting.target_ms;
        self.records[job].ended(request.arrived, latency_ms, request.failed, target_ms);
        self.watches[job].ended(self.now, latency_ms);
    }

    fn dispatch(&mut self, job: usize) {
        for replica in self.jobs[job].dispatch() {
            self.serve(job, replica);
        }
    }

    fn serve(&mut self, job: usize, replica: u32) {
        let time = self.setting.law.run(&mut self.chance);
        self.after(time, Event::Served(job, replica));
    }

    fn pass(&mut self, job: usize) {
        let time = self.setting.law.pass(&mut self.chance);
        self.after(time, Event::Routed(job));
    }

    fn tick(&mut self) {
        let now_s = (self.now / SECOND) as u32;
        for watch in &mut self.watches {
            watch.tick(self.now);
        }
        let jobs = self.jobs.iter().zip(&self.executors);
        let seen = self.watches.iter().zip(jobs);
        let seen: Vec<_> = seen
            .map(|(watch, (job, executor))| watch.seen(job, executor))
            .collect();
        let busy: Vec<bool> = seen.iter().map(|seen| seen.busy).collect();
        let new = self.autoscaler.decide(now_s, &seen).into_iter();
        let mut trials = std::mem::take(&mut self.pending);
        trials.extend(new.map(|change| Trial {
            job: change.job,
            target: Target::Of(change.target),
            left: change.trials,
        }));
        let target = |trial: &Trial, desired: u32| match trial.target {
            Target::Of(target) => target,
            Target::More(more) => desired.saturating_add(more),
        };
        // Changes that remove replicas go first.
        trials.sort_by_key(|trial| {
            let desired = self.watches[trial.job].desired;
            target(trial, desired) >= desired
        });
        for trial in trials {
            let again = Trial {
                left: trial.left.saturating_sub(1),
                ..trial
            };
            if busy[trial.job] {
                self.pending.extend((again.left > 0).then_some(again));
                continue;
            }
            let all: u32 = self.watches.iter().map(|watch| watch.desired).sum();
            let quota = self.setting.processors.saturating_sub(all);
            let before = self.watches[trial.job].desired;
            let asked = target(&trial, before).clamp(1, MOST);
            let granted = asked.min(before + quota.min(asked.saturating_sub(before)));
            if asked > granted && again.left > 0 {
                self.pending.push(Trial {
                    target: Target::More(asked - granted),
                    ..again
                });
            }
            self.watches[trial.job].desired = granted;
            self.executors[trial.job].order(granted);
            self.after(0, Event::Act(trial.job));
        }
    }

    /// Begins the next order of a job.
    fn act(&mut self, job: usize) {
        let Some(target) = self.executors[job].begin() else {
            return;
        };
        let running = self.jobs[job].running();
        if target > running {
            self.executors[job].missing = target - running;
            self.start(job);
        } else if target < running {
            for _ in target..running {
                self.count_replicas(self.now);
                let chance = &mut self.chance;
                self.jobs[job].leave(|turn| turn.shuffle(chance));
                self.executors[job].rest(self.now);
            }
            self.changed(job);
            self.after(REMOVAL, Event::Free(job));
        } else {
            self.after(0, Event::Free(job));
        }
    }

    /// Starts the replicas of a job for which there are workers or processors.
    fn start(&mut self, job: usize) {
        for start in self.executors[job].take(&mut self.free) {
            let time = match start {
                Start::Hot => HOT,
                Start::Cold => COLD,
            };
            self.after(time, Event::Ready(job));
        }
        if self.executors[job].missing > 0 {
            self.after(CHECK, Event::Retry(job));
        }
    }

    fn join(&mut self, job: usize) {
        self.count_replicas(self.now);
        let chance = &mut self.chance;
        self.jobs[job].join(|turn| turn.shuffle(chance));
        self.changed(job);
    }

    fn changed(&mut self, job: usize) {
        let (now, running) = (seconds(self.now), self.jobs[job].running());
        if let Some(last) = self.changes.last_mut()
            && last.0 == now
            && last.1 == job
        {
            last.2 = running;
            return;
        }
        self.changes.push((now, job, running));
    }

    fn count_replicas(&mut self, until: Nanos) {
        let running: u32 = self.jobs.iter().map(Job::running).sum();
        let passed = seconds(until.saturating_sub(self.counted));
        self.replica_seconds += f64::from(running) * passed;
        self.counted = until.max(self.counted);
    }
}
