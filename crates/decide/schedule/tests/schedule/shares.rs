//! The share of each tenant of devices that cannot serve all.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::{Options, Policy};
use sextant_schedule::{
    Action, Actions, Backlog, BatchId, DeviceSpec, LatencyTable, NEVER, Nanos, PoolIx, QueueSpec,
    Request, Scheduler, Schedulers, ahead,
};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MS;

/// The requests of a tenant: this many queries a second, each with this much time.
#[derive(Debug, Clone, Copy)]
struct Load {
    rate: f64,
    target: Nanos,
    weight: f32,
    priority: u8,
}

/// What a tenant got.
#[derive(Debug, Clone, Copy, Default)]
struct TenantTally {
    asked: u32,
    in_time: u32,
    answered: u32,
    /// Device time, ns.
    device: Nanos,
}

/// A batch under way: of which queue, its run time, and its requests' deadlines.
type InFlightBatch = (BatchId, u32, Nanos, Vec<Nanos>);

/// Devices of one slot each on a clock of their own, and the tenants' requests.
struct Bench {
    scheduler: Box<dyn Scheduler<(u32, Nanos)>>,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
    running: Vec<Option<InFlightBatch>>,
    got: Vec<TenantTally>,
    now: Nanos,
}

impl Load {
    fn new(rate: f64, target_ms: u64) -> Self {
        Self {
            rate,
            target: target_ms * MS,
            weight: 1.0,
            priority: 100,
        }
    }

    fn patient(rate: f64) -> Self {
        Self {
            target: NEVER,
            ..Self::new(rate, 0)
        }
    }
}

impl Bench {
    fn new(policy: Policy, devices: u32, latency: &LatencyTable, loads: &[Load]) -> Self {
        let mut bench = Self {
            scheduler: Options::of(policy).build(),
            ends: BinaryHeap::new(),
            running: Vec::new(),
            got: vec![TenantTally::default(); loads.len()],
            now: 0,
        };
        for device in 0..devices {
            let spec = DeviceSpec {
                pool: PoolIx::new(0),
                slots: 1,
            };
            bench.act(|it, now, actions| {
                it.on_device_up(now, DeviceIx::new(device), spec, actions);
            });
        }
        for (queue, load) in (0..).zip(loads) {
            let spec = QueueSpec {
                max_rows: latency.measured_rows(),
                planned_rows: u32::MAX,
                batched: true,
                slots: 1,
                latency: latency.clone(),
                max_waiting_rows: u32::MAX,
                tenant: TenantIx::new(queue),
                priority: load.priority,
                weight: load.weight,
                price: 1.0,
            };
            bench.act(|it, now, actions| {
                it.on_loaded(now, PoolIx::new(0), QueueIx::new(queue), spec, actions);
            });
        }
        bench
    }

    fn act(
        &mut self,
        event: impl FnOnce(&mut dyn Scheduler<(u32, Nanos)>, Nanos, &mut Actions<(u32, Nanos)>),
    ) {
        let mut actions = Actions::new();
        event(self.scheduler.as_mut(), self.now, &mut actions);
        for action in actions {
            let Action::Infer {
                queue,
                requests,
                earliest,
                expected,
                id,
                ..
            } = action
            else {
                continue;
            };
            let end = earliest.max(self.now) + expected;
            self.ends.push(Reverse((end, self.running.len() as u64)));
            let deadlines = requests.iter().map(|request| request.deadline).collect();
            self.running
                .push(Some((id, queue.get(), expected, deadlines)));
        }
    }

    /// Plays what comes before `at`, then goes there.
    fn advance(&mut self, at: Nanos) {
        loop {
            let end = self.ends.peek().map_or(NEVER, |Reverse((end, _))| *end);
            let timer = self.scheduler.next_timer().unwrap_or(NEVER);
            if end.min(timer) > at {
                break;
            }
            self.now = self.now.max(end.min(timer));
            if end <= timer {
                let Reverse((_, key)) = self.ends.pop().unwrap();
                let (id, queue, device, deadlines) = self.running[key as usize].take().unwrap();
                let got = &mut self.got[queue as usize];
                got.device += device;
                got.answered += deadlines.len() as u32;
                let in_time = deadlines.iter().filter(|deadline| end <= **deadline);
                got.in_time += in_time.count() as u32;
                self.act(|it, now, actions| it.on_result(now, id, actions));
            } else {
                self.act(|it, now, actions| it.on_timer(now, actions));
            }
        }
        self.now = at;
    }
}

/// Poisson arrivals of every tenant for so many seconds.
fn run(
    policy: Policy,
    devices: u32,
    latency: &LatencyTable,
    loads: &[Load],
    (seconds, seed): (u64, u64),
) -> Vec<TenantTally> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bench = Bench::new(policy, devices, latency, loads);
    let mut gap = |rate: f64| {
        let uniform: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
        (-uniform.ln() / rate * SECOND as f64) as Nanos
    };
    let mut next: Vec<Nanos> = loads.iter().map(|load| gap(load.rate)).collect();
    loop {
        let (tenant, at) = next
            .iter()
            .copied()
            .enumerate()
            .min_by_key(|it| it.1)
            .unwrap();
        if at > seconds * SECOND {
            break;
        }
        next[tenant] = at + gap(loads[tenant].rate).max(1);
        bench.advance(at);
        bench.got[tenant].asked += 1;
        let request = Request {
            payload: (tenant as u32, at),
            rows: 1,
            deadline: at.saturating_add(loads[tenant].target),
        };
        bench.act(|it, now, actions| {
            it.on_request(now, QueueIx::new(tenant as u32), request, actions);
        });
    }
    // What waits without a target is not waited for.
    bench.advance(seconds * SECOND + SECOND / 10);
    bench.got
}

/// A batch of n rows takes 6 + 4 n ms, of at most 16: 228 rows a second.
fn emulated() -> LatencyTable {
    LatencyTable::linear(4.0, 6.0, 16).unwrap()
}

fn share(got: TenantTally) -> f64 {
    f64::from(got.in_time) / f64::from(got.asked)
}

#[test]
fn who_asks_little_is_answered_in_time_whatever_others_ask() {
    let quiet = Load::new(36.0, 100);
    let floods = [1.5, 3.0, 10.0].map(|times| Load::new(times * 240.0, 100));
    for flood in floods.into_iter().chain([Load::patient(720.0)]) {
        for seed in 0..2 {
            let got = run(Policy::Sextant, 1, &emulated(), &[quiet, flood], (15, seed));
            let context = format!("seed {seed}, flood {flood:?}: {got:?}");
            assert!(share(got[0]) > 0.995, "{context}");
            // The flood has the rest, a little less than 214 rows in each second of it.
            let rest = (15 * SECOND - got[0].device) as f64 / SECOND as f64;
            assert!(f64::from(got[1].answered) > 205.0 * rest, "{context}");
        }
    }
}

#[test]
fn patient_queries_of_one_tenant_do_not_wait_for_all_of_another() {
    let loads = [Load::patient(36.0), Load::patient(720.0)];
    let got = run(Policy::Sextant, 1, &emulated(), &loads, (30, 1));
    assert!(
        f64::from(got[0].answered) > 0.97 * f64::from(got[0].asked),
        "{got:?}"
    );
}

#[test]
fn tenants_that_want_more_than_there_is_get_it_by_their_weights() {
    for seed in 0..8 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let devices = random.random_range(1..5);
        let alpha = random.random_range(1.0..5.0);
        let latency = LatencyTable::linear(alpha, random.random_range(0.0..8.0), 16).unwrap();
        let tenants = random.random_range(2..5);
        let loads: Vec<Load> = (0..tenants)
            .map(|_| Load {
                weight: random.random_range(0.5..4.0),
                target: match random.random_bool(0.7) {
                    true => random.random_range(100..400) * MS,
                    false => NEVER,
                },
                // Alone it would fill all devices, twice.
                ..Load::patient(2.0 * f64::from(devices) * 1000.0 / alpha)
            })
            .collect();
        let got = run(Policy::Sextant, devices, &latency, &loads, (10, seed));
        let all: Nanos = got.iter().map(|got| got.device).sum();
        let weights: f32 = loads.iter().map(|load| load.weight).sum();
        for (got, load) in got.iter().zip(&loads) {
            let has = got.device as f64 / all as f64;
            let due = f64::from(load.weight / weights);
            let context = format!("seed {seed}: {has} of {due}, {loads:?}");
            assert!((has / due - 1.0).abs() < 0.1, "{context}");
        }
        let busy = all as f64 / (10 * SECOND * Nanos::from(devices)) as f64;
        assert!(busy > 0.97, "seed {seed}: {busy} of the time was used");
    }
}

#[test]
fn what_one_tenant_does_not_use_is_for_the_others() {
    // Of three equals one asks a tenth: the others have 45 % each.
    let loads = [22.8, 400.0, 400.0].map(|rate| Load::new(rate, 200));
    let got = run(Policy::Sextant, 1, &emulated(), &loads, (30, 3));
    assert!(share(got[0]) > 0.995, "{got:?}");
    let ratio = got[1].device as f64 / got[2].device as f64;
    assert!((0.95..1.05).contains(&ratio), "{got:?}");
}

#[test]
fn priority_goes_before_weight() {
    let important = Load {
        priority: 101,
        weight: 0.1,
        ..Load::new(100.0, 100)
    };
    let heavy = Load {
        weight: 100.0,
        ..Load::new(1000.0, 100)
    };
    let got = run(
        Policy::Sextant,
        1,
        &emulated(),
        &[important, heavy],
        (30, 4),
    );
    assert!(share(got[0]) > 0.995, "{got:?}");
    assert!(got[1].answered > 0, "{got:?}");
}

#[test]
fn targets_that_nobody_can_meet_beside_others_cost_these_a_quarter_at_most() {
    let hasty = Load::new(20.0, 12);
    let alone = run(
        Policy::Sextant,
        1,
        &emulated(),
        &[Load::new(500.0, 200)],
        (20, 5),
    );
    let got = run(
        Policy::Sextant,
        1,
        &emulated(),
        &[hasty, Load::new(500.0, 200)],
        (20, 5),
    );
    let left = f64::from(got[1].answered) / f64::from(alone[0].answered);
    // A tenth of the time is the other's.
    assert!(left > 0.6, "{left}");
}

#[test]
fn one_tenant_alone_is_served_by_deadline() {
    // The same queries, in two queues of one tenant.
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let backlog = |work| Backlog {
        tenant: TenantIx::new(0),
        priority: 100,
        weight: 1.0,
        work,
        batch: 70,
        lag: 0,
    };
    for _ in 0..100 {
        let work = random.random_range(0..1000);
        assert_eq!(
            ahead(TenantIx::new(0), [backlog(work)].into_iter()),
            Some(work)
        );
        assert_eq!(ahead(TenantIx::new(1), [backlog(work)].into_iter()), None);
    }
}

#[test]
fn what_goes_before_a_query_is_what_the_shares_say() {
    let of = |tenant, priority, weight, work, lag| Backlog {
        tenant: TenantIx::new(tenant),
        priority,
        weight,
        work,
        batch: 50,
        lag,
    };
    let all = [
        of(0, 100, 1.0, 30, 0),
        of(1, 100, 2.0, 1000, 40),
        of(2, 100, 1.0, 5, 0),
        of(3, 200, 1.0, 7, 0),
        of(4, 50, 9.0, 1000, 0),
    ];
    let before = |tenant| ahead(TenantIx::new(tenant), all.into_iter()).unwrap();
    // All of it goes in one batch, after those of a higher priority.
    assert_eq!(before(0), 30 + 7);
    // Turns of 950 / 2 + 40 for an equal of weight 1, who have less than that.
    assert_eq!(before(1), 1000 + 30 + 5 + 7);
    assert_eq!(before(3), 7);
    assert_eq!(before(4), 1000 + 30 + 1000 + 5 + 7);
    let later = [of(0, 100, 2.0, 250, 10), of(1, 100, 0.5, 1000, 0)];
    // 200 after the first batch: turns of 100 + 10, of which the other takes half.
    assert_eq!(ahead(TenantIx::new(0), later.into_iter()), Some(250 + 55));
}
