//! One run: arrivals, a scheduler, devices that take exactly as long as their profile says.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_policies::schedule::{
    Action, BatchId, Delay, DropReason, LatencyTable, NEVER, Nanos, Options, QueueSpec, Request,
    Scheduler, WorkerSpec, build,
};

/// A model under test.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name in reports.
    pub name: String,
    /// Time within which an answer counts, ns; [`NEVER`] for none.
    pub target: Nanos,
    /// Run times by kind of device; `None` where it cannot run. The table's length is the largest
    /// batch.
    pub latency: Vec<Option<Arc<LatencyTable>>>,
    /// Higher goes first.
    pub priority: u8,
    /// Share under overload; 1 is normal.
    pub weight: f32,
}

/// An emulated device: one batch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Position in [`Model::latency`]; devices of a kind form a pool.
    pub kind: u32,
}

/// How measured run times scatter around the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// By a factor that is uniform in `1 - spread ..= 1 + spread`.
    Uniform {
        /// Half the width, 0 to 1.
        spread: f64,
    },
    /// Longer by `factor` with probability `share`.
    Spikes {
        /// Probability, 0 to 1.
        share: f64,
        /// At least 1.
        factor: f64,
    },
}

/// A device goes away and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Position of the device.
    pub device: u32,
    /// When it goes, ns.
    pub from: Nanos,
    /// When it is back, ns.
    pub until: Nanos,
}

/// Everything about a run but its arrivals.
#[derive(Debug, Clone)]
pub struct Setting {
    /// By position: the models.
    pub models: Vec<Model>,
    /// By position: the devices.
    pub devices: Vec<Device>,
    /// The policy, with the delays for which it makes room.
    pub options: Options,
    /// What the network really takes; at most what `options` allow for, or batches are late.
    pub network: Network,
    /// Scatter of run times.
    pub jitter: Jitter,
    /// Devices that fail.
    pub failures: Vec<Failure>,
    /// Of the scatter and the network.
    pub seed: u64,
    /// Keep a histogram of latencies for each model.
    pub histograms: bool,
}

/// Delays of messages: a constant part, and a uniform part on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Network {
    /// Least delays.
    pub base: Delay,
    /// Most that is added to each.
    pub spread: Delay,
}

/// A request as a source makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, ns.
    pub at: Nanos,
    /// Which model.
    pub model: u32,
    /// Who, for a source that waits for answers.
    pub client: u32,
}

/// Where requests come from, in order of time.
pub trait Source {
    /// When the next request comes, as far as is known.
    fn peek(&mut self) -> Option<Nanos>;

    /// The next request. Only called after [`Self::peek`] said there is one.
    fn next(&mut self) -> Arrival;

    /// A request was answered or dropped.
    fn on_answer(&mut self, _now: Nanos, _model: u32, _client: u32) {}
}

/// The measured part of a run.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// From when arrivals count, ns.
    pub from: Nanos,
    /// Until when, ns.
    pub until: Nanos,
    /// By model: more misses than this end the run early; empty for never.
    pub most_missed: Vec<u64>,
}

/// What became of a model's requests that arrived in the span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Arrived.
    pub sent: u64,
    /// Answered in time.
    pub good: u64,
    /// Answered too late.
    pub late: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Sent to a worker that could not start it within its window, or failed with it.
    pub failed: u64,
    /// Longest latency of an answer in time, ns.
    pub max_latency: Nanos,
    /// Latencies of answers, when kept.
    pub latencies: Histogram,
}

/// A run's result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// By model.
    pub models: Vec<Tally>,
    /// Latencies of all answers.
    pub latencies: Histogram,
    /// Time from arrival to the start of the batch.
    pub waits: Histogram,
    /// Device time spent in the span over device time there was, 0 to 1.
    pub busy_share: f64,
    /// Batches started in the span, by rows.
    pub batches: BTreeMap<u32, u64>,
    /// Length of the span, s.
    pub seconds: f64,
    /// Requests simulated, the warm-up included.
    pub simulated: u64,
    /// Whether the run ended early because of [`Span::most_missed`].
    pub stopped: bool,
}

/// Counts of durations in buckets 3 % wide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

/// A run under way.
#[derive(Debug)]
pub struct World<'a> {
    setting: &'a Setting,
    scheduler: Box<dyn Scheduler<Token>>,
    now: Nanos,
    span: Span,
    report: Report,
    tallies: Vec<Counts>,
    devices: Vec<DeviceState>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    batches: Vec<Option<Batch>>,
    vacant: Vec<u32>,
    random: ChaCha8Rng,
    busy: Nanos,
    /// Requests of the span without an answer.
    open: u64,
    actions: Vec<Action<Token>>,
    rows: Vec<u64>,
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    arrived: Nanos,
    model: u32,
    client: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { batch: u32 },
    Down { failure: u32 },
    Up { failure: u32 },
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    requests: Vec<Request<Token>>,
    /// Whether it ran.
    ran: bool,
    start: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct DeviceState {
    free_at: Nanos,
}

/// The hot part of a [`Tally`].
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    sent: u64,
    good: u64,
    late: u64,
    dropped: [u64; REASONS.len()],
    failed: u64,
    max_latency: Nanos,
}

const REASONS: [DropReason; 5] = [
    DropReason::Infeasible,
    DropReason::Expired,
    DropReason::Shed,
    DropReason::QueueFull,
    DropReason::Gone,
];

// === impl World ===

impl<'a> World<'a> {
    /// A world in which nothing has happened.
    pub fn new(setting: &'a Setting) -> Self {
        let mut world = Self {
            setting,
            scheduler: build(&setting.options),
            now: 0,
            span: Span::default(),
            report: Report::default(),
            tallies: vec![Counts::default(); setting.models.len()],
            devices: vec![DeviceState::default(); setting.devices.len()],
            events: BinaryHeap::new(),
            order: 0,
            batches: Vec::new(),
            vacant: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(setting.seed),
            busy: 0,
            open: 0,
            actions: Vec::new(),
            rows: Vec::new(),
        };
        world.load();
        world
    }

    /// Lets `source` send until every request of the span has been answered.
    pub fn run(mut self, source: &mut dyn Source, span: Span) -> Report {
        self.span = span;
        self.report.models = vec![Tally::default(); self.setting.models.len()];
        while !self.report.stopped {
            let event = self.events.first_time();
            let timer = self.scheduler.next_timer().unwrap_or(NEVER).max(self.now);
            let arrival = source.peek().unwrap_or(NEVER);
            let next = event.min(timer).min(arrival);
            if next == NEVER || (next > self.span.until && self.open == 0) {
                break;
            }
            self.now = next;
            if event == next {
                self.on_event(source);
            } else if timer == next {
                self.scheduler.on_timer(next, &mut self.actions);
            } else {
                self.on_arrival(source.next());
            }
            self.carry_out(source);
        }
        self.finish()
    }

    fn load(&mut self) {
        let kinds = self.setting.devices.iter().map(|device| device.kind);
        let kinds: std::collections::BTreeSet<u32> = kinds.collect();
        for kind in kinds {
            for (at, model) in self.setting.models.iter().enumerate() {
                let Some(Some(latency)) = model.latency.get(kind as usize) else {
                    continue;
                };
                let spec = QueueSpec {
                    max_rows: latency.measured_rows(),
                    batched: true,
                    slots: 1,
                    latency: LatencyTable::clone(latency),
                    max_waiting_rows: u32::MAX,
                    priority: model.priority,
                    weight: model.weight,
                };
                self.scheduler
                    .on_loaded(0, kind, at as u32, spec, &mut self.actions);
            }
        }
        for at in 0..self.setting.devices.len() as u32 {
            self.device_up(at);
        }
        for (at, failure) in self.setting.failures.iter().enumerate() {
            let failure_at = at as u32;
            self.events.push(Reverse((
                failure.from,
                0,
                Event::Down {
                    failure: failure_at,
                },
            )));
            self.events.push(Reverse((
                failure.until,
                0,
                Event::Up {
                    failure: failure_at,
                },
            )));
        }
    }

    fn device_up(&mut self, device: u32) {
        let pool = self.setting.devices[device as usize].kind;
        let spec = WorkerSpec { pool, slots: 1 };
        self.devices[device as usize].free_at = self.now;
        self.scheduler
            .on_worker_up(self.now, device, spec, &mut self.actions);
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        let model = &self.setting.models[arrival.model as usize];
        self.report.simulated += 1;
        if self.counts(arrival.at) {
            self.tallies[arrival.model as usize].sent += 1;
            self.open += 1;
        }
        let request = Request {
            payload: Token {
                arrived: arrival.at,
                model: arrival.model,
                client: arrival.client,
            },
            rows: 1,
            deadline: arrival.at.saturating_add(model.target),
        };
        self.scheduler
            .on_request(self.now, arrival.model, request, &mut self.actions);
    }

    fn on_event(&mut self, source: &mut dyn Source) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::End { batch } => self.on_end(batch, source),
            Event::Down { failure } => self.on_down(failure),
            Event::Up { failure } => {
                self.device_up(self.setting.failures[failure as usize].device);
            }
        }
    }

    fn on_end(&mut self, at: u32, source: &mut dyn Source) {
        let Some(batch) = self.batches[at as usize].take() else {
            return;
        };
        self.vacant.push(at);
        self.scheduler
            .on_result(self.now, batch.id, &mut self.actions);
        let answered = self.now + self.network(|delay| delay.response);
        for request in &batch.requests {
            self.answer(
                request,
                batch.ran.then_some((batch.start, answered)),
                source,
            );
        }
    }

    fn answer(
        &mut self,
        request: &Request<Token>,
        ran: Option<(Nanos, Nanos)>,
        source: &mut dyn Source,
    ) {
        let Token {
            arrived,
            model,
            client,
        } = request.payload;
        source.on_answer(ran.map_or(self.now, |(_, end)| end), model, client);
        if !self.counts(arrived) {
            return;
        }
        self.open -= 1;
        let tally = &mut self.tallies[model as usize];
        let Some((start, answered)) = ran else {
            tally.failed += 1;
            return self.look_at_misses(model);
        };
        let latency = answered - arrived;
        self.report.latencies.add(latency);
        self.report.waits.add(start.saturating_sub(arrived));
        if self.setting.histograms {
            self.report.models[model as usize].latencies.add(latency);
        }
        if answered <= request.deadline {
            tally.good += 1;
            tally.max_latency = tally.max_latency.max(latency);
        } else {
            tally.late += 1;
            self.look_at_misses(model);
        }
    }

    fn on_down(&mut self, failure: u32) {
        let device = self.setting.failures[failure as usize].device;
        let lost = self
            .scheduler
            .on_worker_down(self.now, device, &mut self.actions);
        for at in 0..self.batches.len() {
            let Some(batch) = self.batches[at].take_if(|batch| lost.contains(&batch.id)) else {
                continue;
            };
            // Its end stays in the calendar and must not meet another batch: the place is not
            // used again.
            for request in batch.requests {
                let model = request.payload.model;
                self.scheduler
                    .on_request(self.now, model, request, &mut self.actions);
            }
        }
    }

    fn carry_out(&mut self, source: &mut dyn Source) {
        if self.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Drop { request, reason } => self.on_drop(&request, reason, source),
                Action::Infer {
                    queue,
                    worker,
                    requests,
                    earliest,
                    latest,
                    id,
                    ..
                } => self.start(queue, worker, requests, (earliest, latest), id),
            }
        }
        self.actions = actions;
    }

    fn on_drop(&mut self, request: &Request<Token>, reason: DropReason, source: &mut dyn Source) {
        let Token {
            arrived,
            model,
            client,
        } = request.payload;
        source.on_answer(self.now, model, client);
        if self.counts(arrived) {
            self.open -= 1;
            let at = REASONS.iter().position(|known| *known == reason);
            self.tallies[model as usize].dropped[at.unwrap_or(0)] += 1;
            self.look_at_misses(model);
        }
    }

    fn start(
        &mut self,
        model: u32,
        device: u32,
        requests: Vec<Request<Token>>,
        (earliest, latest): (Nanos, Nanos),
        id: BatchId,
    ) {
        let kind = self.setting.devices[device as usize].kind as usize;
        let Some(Some(latency)) = self.setting.models[model as usize].latency.get(kind) else {
            return;
        };
        let rows: u32 = requests.iter().map(|request| request.rows).sum();
        let profile = latency.of(rows);
        let sent = self.now + self.network(|delay| delay.before_start(rows));
        let free_at = self.devices[device as usize].free_at;
        let start = sent.max(earliest).max(free_at);
        let ran = start <= latest;
        let end = if ran {
            start + self.scatter(profile)
        } else {
            start
        };
        self.devices[device as usize].free_at = end;
        if ran {
            self.count_busy(start, end);
            if self.counts(start) {
                let at = rows as usize;
                if self.rows.len() <= at {
                    self.rows.resize(at + 1, 0);
                }
                self.rows[at] += 1;
            }
        }
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = Some(Batch {
            id,
            requests,
            ran,
            start,
        });
        self.order += 1;
        self.events
            .push(Reverse((end, self.order, Event::End { batch: at })));
    }

    fn scatter(&mut self, profile: Nanos) -> Nanos {
        let factor = match self.setting.jitter {
            Jitter::None => return profile,
            Jitter::Uniform { spread } => 1.0 + spread * (2.0 * self.random.random::<f64>() - 1.0),
            Jitter::Spikes { share, factor } if self.random.random::<f64>() < share => factor,
            Jitter::Spikes { .. } => 1.0,
        };
        (profile as f64 * factor).round() as Nanos
    }

    fn network(&mut self, part: impl Fn(&Delay) -> Nanos) -> Nanos {
        let spread = part(&self.setting.network.spread);
        let more = if spread == 0 {
            0
        } else {
            self.random.random_range(0..=spread)
        };
        part(&self.setting.network.base) + more
    }

    fn counts(&self, arrived: Nanos) -> bool {
        arrived >= self.span.from && arrived < self.span.until
    }

    fn count_busy(&mut self, start: Nanos, end: Nanos) {
        let (from, until) = (start.max(self.span.from), end.min(self.span.until));
        self.busy += until.saturating_sub(from);
    }

    fn look_at_misses(&mut self, model: u32) {
        if let Some(most) = self.span.most_missed.get(model as usize) {
            let tally = &self.tallies[model as usize];
            let missed = tally.late + tally.failed + tally.dropped.iter().sum::<u64>();
            self.report.stopped |= missed > *most;
        }
    }

    fn finish(mut self) -> Report {
        let length = self.span.until - self.span.from;
        let capacity = length as f64 * self.devices.len() as f64;
        self.report.busy_share = self.busy as f64 / capacity.max(1.0);
        self.report.seconds = length as f64 / 1e9;
        for (rows, count) in self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            self.report.batches.insert(rows as u32, *count);
        }
        for (tally, counts) in self.report.models.iter_mut().zip(&self.tallies) {
            counts.write(tally);
        }
        self.report
    }
}

/// The time of the next event.
trait Calendar {
    fn first_time(&self) -> Nanos;
}

impl Calendar for BinaryHeap<Reverse<(Nanos, u64, Event)>> {
    fn first_time(&self) -> Nanos {
        self.peek().map_or(NEVER, |Reverse((at, _, _))| *at)
    }
}

// === impl Counts ===

impl Counts {
    fn write(&self, tally: &mut Tally) {
        tally.sent = self.sent;
        tally.good = self.good;
        tally.late = self.late;
        tally.failed = self.failed;
        tally.max_latency = self.max_latency;
        let dropped = REASONS.iter().zip(self.dropped).filter(|(_, n)| *n > 0);
        tally.dropped = dropped.map(|(reason, n)| (*reason, n)).collect();
    }
}

// === impl Tally ===

impl Tally {
    /// Late, dropped or failed.
    pub fn missed(&self) -> u64 {
        self.late + self.failed + self.dropped.values().sum::<u64>()
    }

    /// Share of requests that were missed, 0 to 1; 0 without any.
    pub fn missed_share(&self) -> f64 {
        self.missed() as f64 / self.sent.max(1) as f64
    }
}

// === impl Report ===

impl Report {
    /// The largest share of missed requests of any model.
    pub fn worst_missed_share(&self) -> f64 {
        self.models
            .iter()
            .map(Tally::missed_share)
            .fold(0.0, f64::max)
    }

    /// Requests answered in time, per second.
    pub fn good_per_s(&self) -> f64 {
        let good: u64 = self.models.iter().map(|tally| tally.good).sum();
        good as f64 / self.seconds
    }

    /// Mean rows of a batch; 0 without any.
    pub fn mean_rows(&self) -> f64 {
        let batches: u64 = self.batches.values().sum();
        let rows: u64 = self
            .batches
            .iter()
            .map(|(rows, n)| u64::from(*rows) * n)
            .sum();
        rows as f64 / batches.max(1) as f64
    }
}

// === impl Histogram ===

/// Buckets in each doubling.
const STEPS: u32 = 32;

impl Histogram {
    fn add(&mut self, nanos: Nanos) {
        let at = Self::bucket(nanos);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
    }

    /// The duration that `share` (0 to 1) of the counted ones don't exceed, to 3 %, ns; 0 when
    /// nothing was counted.
    pub fn quantile(&self, share: f64) -> Nanos {
        let wanted = ((share * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::upper(at);
            }
        }
        0
    }

    /// Durations counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn bucket(nanos: Nanos) -> usize {
        let nanos = nanos.max(u64::from(STEPS));
        let octave = nanos.ilog2() - STEPS.ilog2();
        let within = (nanos >> octave) as u32 - STEPS;
        (octave * STEPS + within) as usize
    }

    fn upper(bucket: usize) -> Nanos {
        let (octave, within) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
        (u64::from(STEPS + within + 1) << octave) - 1
    }
}
