//! A workload made by integer arithmetic alone, and the figures that a scheduler gives for it.

use std::collections::BTreeMap;

use sextant_baselines::Options;
use sextant_schedule::{
    Action, Actions, BatchId, DeviceSpec, DropReason, NEVER, Nanos, PoolIx, QueueSpec, Request,
    Scheduler, Schedulers,
};
use sextant_types::index::{DeviceIx, QueueIx};

/// The requests of one queue.
#[derive(Debug, Clone)]
pub struct Stream {
    pub spec: QueueSpec,
    /// Mean time between two requests, ns. They are three times as frequent in every fourth tenth of a second.
    pub gap: Nanos,
    /// Time to answer, ns; [`NEVER`] for none. A quarter of the requests have half as much more.
    pub target: Nanos,
    /// Requests have 1 to this many rows.
    pub rows: u32,
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Trial {
    pub options: Options,
    /// Devices, and the slots of each.
    pub devices: (u32, u16),
    pub streams: Vec<Stream>,
    /// When the last request comes, ns.
    pub until: Nanos,
    /// Whether a device is gone in the third fifth of the time, and a queue in the fourth.
    pub changes: bool,
}

/// The figures. Every batch that starts differently changes a sum.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub batches: u64,
    pub answered: u64,
    pub expired: u64,
    pub shed: u64,
    /// Refused, or handed back with a queue that is gone.
    pub refused: u64,
    /// Sum of the batches' starts, us.
    pub starts: u64,
    /// Sum of the devices' numbers.
    pub devices: u64,
    /// Sum of the ends of the windows in which batches may start, us, those without an end left out.
    pub windows: u64,
    /// Timers that were set, and the sum of their times, us.
    pub timers: (u64, u64),
    /// Sum of the shares' lags, us.
    pub lags: u64,
}

struct Play {
    trial: Trial,
    scheduler: Box<dyn Scheduler<()>>,
    running: BTreeMap<(Nanos, BatchId), ()>,
    figures: Figures,
    now: Nanos,
    timer: Option<Nanos>,
    random: u64,
}

/// Plays `trial` to the end.
pub fn play(trial: &Trial) -> String {
    let mut play = Play::new(trial.clone());
    let mut next: Vec<Nanos> = (0..trial.streams.len()).map(|it| play.gap(it)).collect();
    let mut part = 0;
    while let Some(at) = next.iter().copied().min().filter(|at| *at < trial.until) {
        let stream = next.iter().position(|it| *it == at).unwrap();
        if trial.changes && at * 5 / trial.until > part {
            part = at * 5 / trial.until;
            play.advance(at);
            play.change(part);
        }
        play.advance(at);
        play.arrive(stream);
        next[stream] = at + play.gap(stream);
    }
    // Requests without a target that still wait are not waited for any longer.
    play.advance(trial.until + trial.until / 4);
    play.figures.to_string()
}

// === impl Figures ===

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            batches,
            answered,
            expired,
            shed,
            refused,
            starts,
            devices,
            windows,
            timers: (set, times),
            lags,
        } = self;
        write!(f, "{batches} batches, {answered} answered, ")?;
        write!(f, "{expired} expired, {shed} shed, {refused} refused; ")?;
        write!(f, "starts {starts}, windows {windows}, devices {devices}; ")?;
        write!(f, "{set} timers, {times}; lags {lags}")
    }
}

// === impl Play ===

impl Play {
    fn new(trial: Trial) -> Self {
        let mut play = Self {
            scheduler: trial.options.build(),
            running: BTreeMap::new(),
            figures: Figures::default(),
            now: 0,
            timer: None,
            random: 0,
            trial,
        };
        (0..play.trial.devices.0).for_each(|device| play.up(DeviceIx::new(device)));
        (0..play.trial.streams.len()).for_each(|queue| play.load(queue));
        play
    }

    fn up(&mut self, device: DeviceIx) {
        let slots = self.trial.devices.1;
        let spec = DeviceSpec {
            pool: PoolIx::new(0),
            slots,
        };
        self.act(|it, now, actions| drop(it.on_device_up(now, device, spec, actions)));
    }

    fn load(&mut self, queue: usize) {
        let spec = self.trial.streams[queue].spec.clone();
        self.act(|it, now, actions| {
            it.on_loaded(
                now,
                PoolIx::new(0),
                QueueIx::new(queue as u32),
                spec,
                actions,
            );
        });
    }

    fn change(&mut self, part: u64) {
        match part {
            2 => {
                let mut lost = Vec::new();
                self.act(|it, now, actions| {
                    lost = it.on_device_down(now, DeviceIx::new(0), actions);
                });
                self.running.retain(|(_, id), ()| !lost.contains(id));
            }
            3 => {
                self.up(DeviceIx::new(0));
                self.act(|it, now, actions| {
                    it.on_unloaded(now, PoolIx::new(0), QueueIx::new(0), actions);
                });
            }
            4 => self.load(0),
            _ => {}
        }
    }

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn gap(&mut self, stream: usize) -> Nanos {
        let gap = self.trial.streams[stream].gap;
        let is_peak = self.now / 100_000_000 % 4 == 3;
        1 + self.draw(2 * if is_peak { gap / 3 } else { gap })
    }

    fn arrive(&mut self, stream: usize) {
        let of = self.trial.streams[stream].clone();
        let rows = 1 + self.draw(u64::from(of.rows)) as u32;
        let more = if self.draw(4) == 0 { of.target / 2 } else { 0 };
        let request = Request {
            payload: (),
            rows,
            deadline: match of.target {
                NEVER => NEVER,
                target => self.now + target + more,
            },
        };
        self.act(|it, now, actions| {
            it.on_request(now, QueueIx::new(stream as u32), request, actions);
        });
    }

    /// Plays the events before `at`, then goes to `at`.
    fn advance(&mut self, at: Nanos) {
        loop {
            let end = self.running.keys().next().copied();
            let ends = end.map_or(NEVER, |(end, _)| end);
            let timer = self.timer.unwrap_or(NEVER);
            if ends.min(timer) > at {
                break;
            }
            self.now = self.now.max(ends.min(timer));
            match end.filter(|_| ends <= timer) {
                Some((end, id)) => {
                    self.running.remove(&(end, id));
                    self.act(|it, now, actions| it.on_result(now, id, actions));
                }
                None => self.act(|it, now, actions| it.on_timer(now, actions)),
            }
        }
        self.now = at;
    }

    fn act(&mut self, event: impl FnOnce(&mut dyn Scheduler<()>, Nanos, &mut Actions<()>)) {
        let mut actions = Actions::new();
        event(self.scheduler.as_mut(), self.now, &mut actions);
        actions.into_iter().for_each(|action| self.note(action));
        let timer = self.scheduler.next_timer();
        if timer != self.timer {
            self.timer = timer;
            self.figures.timers.0 += 1;
            self.figures.timers.1 += timer.unwrap_or(0) / 1000;
        }
        let lags = &mut self.figures.lags;
        self.scheduler
            .backlogs(PoolIx::new(0), &mut |backlog| *lags += backlog.lag / 1000);
    }

    fn note(&mut self, action: Action<()>) {
        let of = &mut self.figures;
        match action {
            Action::Infer {
                device,
                requests,
                earliest,
                latest,
                expected,
                id,
                ..
            } => {
                of.batches += 1;
                of.answered += requests.len() as u64;
                of.starts += earliest / 1000;
                of.devices += u64::from(device.get());
                of.windows += if latest == NEVER { 0 } else { latest / 1000 };
                // Every seventh batch takes a little less than expected.
                let is_seventh = of.batches.is_multiple_of(7);
                let sooner = if is_seventh { expected / 8 } else { 0 };
                let end = earliest.max(self.now) + expected - sooner;
                self.running.insert((end, id), ());
            }
            Action::Drop { reason, .. } => match reason {
                DropReason::Expired => of.expired += 1,
                DropReason::Shed => of.shed += 1,
                _ => of.refused += 1,
            },
        }
    }
}
