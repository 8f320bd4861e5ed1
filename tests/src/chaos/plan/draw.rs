//! Draws a plan from a seed.

use std::ops::Range;

use super::{Application, Cut, FailureRates, Fault, Job, Kind, Loss, Plan, Registration, Setting};
use crate::{chaos::worth::Draw, fleet::End};

/// Longest time without faults at the start, milliseconds. Short runs have a quarter of their length.
const HEAD_START_MS: u64 = 2000;

/// Shorter runs than this are short, milliseconds.
const SHORT_MS: u64 = 5000;

impl Plan {
    /// The plan of a seed. `length_ms` is the time for which the load is exposed to faults: 10 to 20 s if it is `None`.
    pub fn draw(seed: u64, length_ms: Option<u64>) -> Self {
        let length_ms = length_ms.unwrap_or_else(|| Draw::new(seed, 0).within(10_000..20_000));
        let mut plan = Self {
            seed,
            length_ms,
            setting: setting(
                &mut Draw::new(seed, 1),
                dispatchers(&mut Draw::new(seed, 9)),
            ),
            applications: applications(&mut Draw::new(seed, 2)),
            jobs: Vec::new(),
            registrations: Vec::new(),
            failing: failing(&mut Draw::new(seed, 6)),
            faults: Vec::new(),
            registry_away_ms: registry_away_ms(&mut Draw::new(seed, 7)),
            losses: Vec::new(),
        };
        plan.jobs = plan.draw_jobs(&mut Draw::new(seed, 3));
        plan.registrations = plan.draw_registrations(&mut Draw::new(seed, 5));
        plan.faults = plan.draw_faults(&mut Draw::new(seed, 4));
        plan.losses = plan.draw_losses(&mut Draw::new(seed, 8));
        plan
    }

    fn draw_jobs(&self, draw: &mut Draw) -> Vec<Job> {
        let mut job = |number, at_ms: Option<Range<u64>>, device_ms: Range<u64>| {
            let application = draw.within(0..self.applications.len() as u64) as usize;
            Job {
                name: format!("job-{number}"),
                application,
                at_ms: at_ms.map(|range| draw.within(range)),
                // Enough for any model, and more than one chunk.
                records: (draw.within(device_ms) / self.applications[application].alpha_ms.max(8))
                    .max(30),
            }
        };
        let length_ms = self.length_ms;
        // Up to a quarter of the time of a device.
        let amid = (0..length_ms / 2, length_ms / 30..length_ms / 4);
        vec![
            job(1, Some(amid.0.clone()), amid.1.clone()),
            job(2, Some(amid.0), amid.1),
            // Certain to run when its stores or runners are cut.
            job(3, None, 4000..6000),
        ]
    }

    fn draw_registrations(&self, draw: &mut Draw) -> Vec<Registration> {
        let mut at_ms = || draw.within(0..self.length_ms * 3 / 4);
        let times = [Some(at_ms()), Some(at_ms()), None];
        let registration = |(number, at_ms)| Registration {
            name: format!("late-{number}"),
            at_ms,
        };
        (1..).zip(times).map(registration).collect()
    }

    /// Two losses of a fleet whose devices do not fail on purpose, one in a short run: refusals by failing devices are
    /// no losses.
    fn draw_losses(&self, draw: &mut Draw) -> Vec<Loss> {
        if self.setting == Setting::One || self.failing != FailureRates::default() {
            return Vec::new();
        }
        let mut left = Loss::ALL.to_vec();
        if let Setting::Fleet { dispatchers: 1, .. } = self.setting {
            left.retain(|loss| !loss.needs_standby());
        }
        let mut next = || left.swap_remove(draw.within(0..left.len() as u64) as usize);
        match self.length_ms < SHORT_MS {
            true => vec![next()],
            false => vec![next(), next()],
        }
    }

    /// Faults one after another with some overlap, but no two at once with the same target.
    fn draw_faults(&self, draw: &mut Draw) -> Vec<Fault> {
        let kinds = self.kinds();
        let mut faults: Vec<Fault> = Vec::new();
        let mut at_ms = HEAD_START_MS.min(self.length_ms / 4);
        while at_ms < self.length_ms {
            let kind = self.draw_kind(&kinds, draw);
            let most = (self.length_ms - at_ms).min(5000) + 1;
            let for_ms = draw.within(300.min(most - 1)..most);
            let is_free = |other: &Fault| {
                other.kind.target() != kind.target() || other.at_ms + other.for_ms < at_ms
            };
            if faults.iter().all(is_free) {
                faults.push(Fault {
                    at_ms,
                    for_ms,
                    kind,
                });
            }
            at_ms += draw.within(500..3500);
        }
        faults
    }

    /// Draws a wire only sometimes: there are so many wires that they would displace everything else.
    fn draw_kind(&self, kinds: &[Kind], draw: &mut Draw) -> Kind {
        let has_wires = self.setting != Setting::One;
        if !has_wires || draw.within(0..5) < 3 {
            return draw.of(kinds).clone();
        }
        Kind::Wire {
            process: draw.of(&self.processes()).clone(),
            end: *draw.of(&End::ALL),
            cut: *draw.of(&Cut::ALL),
        }
    }

    /// The other kinds of faults in the setting; processes occur more often than stores.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for process in self.processes() {
            kinds.push(Kind::Freeze {
                process: process.clone(),
            });
            kinds.push(Kind::Kill { process });
        }
        match self.setting {
            Setting::One => kinds.extend([Kind::DiskFull, Kind::DiskFilled]),
            Setting::Fleet { .. } => kinds.extend([
                Kind::DiskFilled,
                Kind::RedisSilent,
                Kind::RedisEmptied,
                Kind::RedisKilled,
                Kind::PostgresSilent,
                Kind::PostgresKilled,
                Kind::S3Slow,
                Kind::S3Silent,
                Kind::S3Refuses,
            ]),
        }
        kinds
    }
}

/// One fleet in two has no standby dispatcher.
fn dispatchers(draw: &mut Draw) -> usize {
    draw.within(1..3) as usize
}

fn setting(draw: &mut Draw, dispatchers: usize) -> Setting {
    if draw.within(0..3) == 0 {
        return Setting::One;
    }
    let workers = draw.within(2..4) as usize;
    // S3 accepts no request whose time is off by more than a quarter of an hour.
    let clocks = ["+10m", "-5m", "+3s"];
    let last = match dispatchers {
        1 => "dispatcher".to_owned(),
        number => format!("dispatcher-{number}"),
    };
    let wrong = ["worker-1", "dispatcher", &last, "autoscaler"];
    let wrong_clock = (draw.within(0..3) == 0).then(|| {
        (
            (*draw.of(&wrong)).to_owned(),
            (*draw.of(&clocks)).to_owned(),
        )
    });
    Setting::Fleet {
        dispatchers,
        front_ends: draw.within(1..3) as usize,
        workers,
        wrong_clock,
    }
}

/// One run in three has devices that fail on purpose.
fn failing(draw: &mut Draw) -> FailureRates {
    match draw.within(0..3) {
        0 => FailureRates {
            loads: draw.within(20..60),
            batches: draw.within(0..8),
        },
        _ => FailureRates::default(),
    }
}

/// A moment, or longer than any wait for a connection to it.
fn registry_away_ms(draw: &mut Draw) -> u64 {
    [0, 5000][draw.within(0..2) as usize]
}

/// A modest application, one that asks for more than there is, and sometimes another modest one.
fn applications(draw: &mut Draw) -> Vec<Application> {
    let modest = |name: &str, draw: &mut Draw| Application {
        name: name.to_owned(),
        alpha_ms: draw.within(2..10),
        beta_ms: draw.within(2..20),
        rate: draw.within(4..9) as f64,
        // Long enough that a busy machine causes no refusal.
        latency_ms: [None, Some(15_000), Some(30_000)][draw.within(0..3) as usize],
        is_modest: true,
    };
    let mut all = vec![modest("quiet", draw)];
    if draw.within(0..2) == 0 {
        all.push(modest("calm", draw));
    }
    let alpha_ms = draw.within(30..60);
    all.push(Application {
        name: "loud".to_owned(),
        alpha_ms,
        beta_ms: draw.within(10..40),
        // A device answers at most one row in this time; there are up to three devices.
        rate: 1000.0 / alpha_ms as f64 * draw.within(1..6) as f64,
        latency_ms: Some(draw.within(400..2000)),
        is_modest: false,
    });
    all
}
