use futures::FutureExt;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_metadata::{InProcessRates, RateStore};

use super::*;

/// A front end in virtual time: a pool, and the block that is on its way to it.
struct FrontEnd {
    pool: Pool,
    /// Number of tokens, when they were asked for, and when the store answers.
    block: Option<(u32, u64, u64)>,
    admitted: u64,
}

/// Front ends over one store, driven by seeded arrivals.
struct World {
    store: InProcessRates,
    front_ends: Vec<FrontEnd>,
    random: ChaCha8Rng,
    slowest_ms: u64,
}

// === impl World ===

impl World {
    fn new(seed: u64, kind: Kind, front_ends: usize) -> Self {
        let front_end = || FrontEnd {
            pool: Pool::new(kind),
            block: None,
            admitted: 0,
        };
        Self {
            store: InProcessRates::new(),
            front_ends: std::iter::repeat_with(front_end).take(front_ends).collect(),
            random: ChaCha8Rng::seed_from_u64(seed),
            slowest_ms: 6,
        }
    }

    /// One millisecond with `arrivals` requests at each front end, on average.
    fn step(&mut self, now_ms: u64, arrivals: f64) {
        for front_end in &mut self.front_ends {
            if let Some((tokens, asked_ms, at_ms)) = front_end.block
                && at_ms <= now_ms
            {
                let granted = ask(&self.store, front_end.pool.kind(), tokens, now_ms);
                front_end.pool.arrived(tokens, granted, asked_ms);
                front_end.block = None;
            }
            let whole = arrivals.floor() as u32;
            let one = self.random.random_bool(arrivals.fract());
            for _ in 0..whole + u32::from(one) {
                if front_end.pool.spend(now_ms) == SpendOutcome::Yes {
                    front_end.admitted += 1;
                }
            }
            if let Some(tokens) = front_end.pool.wants(0, now_ms) {
                let delay_ms = self.random.random_range(0..self.slowest_ms);
                front_end.block = Some((tokens, now_ms, now_ms + delay_ms));
            }
        }
    }

    fn admitted(&self) -> u64 {
        self.front_ends
            .iter()
            .map(|front_end| front_end.admitted)
            .sum()
    }
}

fn ask(store: &InProcessRates, kind: Kind, tokens: u32, now_ms: u64) -> u32 {
    let granted = match kind {
        Kind::Rate(rate) => store.take("a", tokens, rate, now_ms).now_or_never(),
        Kind::Quota(limit) => {
            let window = (limit, DAY_MS);
            store.spend("a", tokens, window, now_ms).now_or_never()
        }
    };
    granted.expect("answers at once").expect("is there")
}

#[test]
fn front_ends_together_keep_to_rate_and_burst() {
    for seed in 0..30 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let per_s = random.random_range(1.0..2000.0);
        let burst = random.random_range(1.0f64..500.0).floor();
        let front_ends = random.random_range(1..5);
        let rate = Rate { per_s, burst };
        let mut world = World::new(seed, Kind::Rate(rate), front_ends);
        // Twice what the rate allows, in all.
        let arrivals = 2.0 * per_s / 1e3 / front_ends as f64;
        for now_ms in 0..5000 {
            world.step(now_ms, arrivals);
            let most = burst + per_s * now_ms as f64 / 1e3;
            let admitted = world.admitted() as f64;
            assert!(
                admitted <= most + 1e-6,
                "seed {seed}: {admitted} of {most} at {now_ms} ms"
            );
        }
        let fair = per_s * 5.0 * 0.9 - 2.0 * front_ends as f64;
        let admitted = world.admitted() as f64;
        assert!(
            admitted >= fair.min(arrivals * 4000.0),
            "seed {seed}: {admitted} of {fair}"
        );
    }
}

#[test]
fn front_ends_together_keep_to_a_quota_and_use_it() {
    for seed in 0..10 {
        let limit = ChaCha8Rng::seed_from_u64(seed).random_range(1..3000);
        let mut world = World::new(seed, Kind::Quota(limit), 3);
        let start_ms = DAY_MS - 2500;
        for now_ms in start_ms..start_ms + 2500 {
            world.step(now_ms, 1.0);
            assert!(world.admitted() <= limit, "seed {seed}");
        }
        let used = world.admitted();
        assert!(
            used + 3 * (1 + limit / 1000) >= limit,
            "seed {seed}: {used} of {limit}"
        );
        // A new day: the tokens of the last day are void.
        for now_ms in DAY_MS..DAY_MS + 2500 {
            world.step(now_ms, 1.0);
            assert!(world.admitted() <= used + limit, "seed {seed}");
        }
        assert!(world.admitted() > used, "seed {seed}");
    }
}

#[test]
fn blocks_grow_with_the_demand_and_shrink_with_it() {
    let rate = Rate {
        per_s: 1e6,
        burst: 1e4,
    };
    let mut world = World::new(1, Kind::Rate(rate), 1);
    (0..1000).for_each(|now_ms| world.step(now_ms, 50.0));
    assert!(world.admitted() > 45_000, "{}", world.admitted());
    assert!(world.front_ends[0].pool.block > 1000);
    (0..500).for_each(|step| world.step(1000 + step * 1000, 50.0));
    assert!(world.front_ends[0].pool.block < 200);
}

#[test]
fn a_store_that_is_away_leaves_the_last_rate_in_force() {
    let rate = Rate {
        per_s: 10.0,
        burst: 5.0,
    };
    let mut pool = Pool::new(Kind::Rate(rate));
    assert_eq!(pool.spend(1000), SpendOutcome::Wait);
    assert_eq!(pool.wants(0, 1000), Some(1));
    pool.go_on_alone(1025);
    let mut admitted = 0;
    for now_ms in 1025..3025 {
        admitted += u32::from(pool.spend(now_ms) == SpendOutcome::Yes);
    }
    // The first at once, and then ten a second.
    assert!((20..=21).contains(&admitted), "{admitted}");
    pool.failed(3025);
    assert_eq!(pool.wants(0, 3100), None);
    let wanted = pool.wants(0, 3600).expect("asks again");
    pool.arrived(wanted, 0, 3600);
    assert_eq!(
        pool.spend(3600),
        SpendOutcome::No {
            retry_after_ms: 100
        }
    );
}

#[test]
fn what_a_quota_let_through_is_counted_later() {
    let mut pool = Pool::new(Kind::Quota(10));
    let wanted = pool.wants(0, 1000).expect("asks");
    pool.failed(1000);
    for _ in 0..7 {
        assert_eq!(pool.spend(1100), SpendOutcome::Yes);
    }
    let again = pool.wants(0, 2000).expect("asks again");
    assert_eq!((wanted, again), (1, 8));
    pool.arrived(again, 8, 2000);
    assert_eq!(pool.spend(2000), SpendOutcome::Yes);
    assert_eq!(pool.spend(2000), SpendOutcome::Wait);
}
