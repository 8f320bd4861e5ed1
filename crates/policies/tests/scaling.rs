//! Health, what should be loaded, and throttling.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sextant_policies::{
    health::{Condition, Health, Thresholds, Window},
    throttle::{Observation, Throttle, Verdict},
    wanted::{Candidate, Place, Reason, SharedBytes, Wish, wanted},
};

/// An instance alone on its device.
fn window(load: f64, slow_down: f64) -> Window {
    among(load, load, 1, slow_down)
}

/// One of so many instances with work that keep the device busy together.
fn among(load: f64, device_load: f64, busy_instances: u32, slow_down: f64) -> Window {
    Window {
        load,
        device_load,
        busy_instances,
        late: 0,
        slow_down,
        batches: 100,
    }
}

fn settle(health: &mut Health, seen: Window) -> Option<Condition> {
    (0..8).find_map(|_| health.observe(seen, &Thresholds::default()))
}

#[test]
fn overload_and_interference_are_told_apart_and_left_again() {
    let mut health = Health::default();
    assert_eq!(
        settle(&mut health, window(0.3, 2.5)),
        Some(Condition::Interfered)
    );
    assert_eq!(
        settle(&mut health, window(1.0, 2.5)),
        Some(Condition::Overloaded)
    );
    assert_eq!(
        settle(&mut health, window(0.3, 1.0)),
        Some(Condition::Healthy)
    );
}

#[test]
fn a_single_bad_window_changes_nothing_and_the_edge_does_not_flap() {
    let (mut health, limits) = (Health::default(), Thresholds::default());
    assert_eq!(health.observe(window(1.0, 1.0), &limits), None);
    assert_eq!(health.observe(window(0.1, 1.0), &limits), None);
    assert_eq!(health.condition(), Condition::Healthy);
    assert_eq!(
        settle(&mut health, window(1.0, 1.0)),
        Some(Condition::Overloaded)
    );
    assert_eq!(
        settle(&mut health, window(0.85, 1.0)),
        None,
        "between the two levels"
    );
}

#[test]
fn few_batches_say_nothing_about_latency() {
    let mut health = Health::default();
    let seen = Window {
        batches: 2,
        ..window(0.1, 9.0)
    };
    assert_eq!(settle(&mut health, seen), None);
}

#[test]
fn instances_that_fill_a_device_together_are_overloaded_and_a_trifle_beside_them_is_not() {
    for (load, expected) in [
        (0.12, Some(Condition::Overloaded)),
        (0.07, Some(Condition::Overloaded)),
        (0.01, None),
        (0.0, None),
    ] {
        let mut health = Health::default();
        let seen = among(load, 0.97, 8, 1.0);
        assert_eq!(settle(&mut health, seen), expected, "load {load}");
        let roomy = among(load, 0.7, 8, 1.0);
        assert_eq!(settle(&mut Health::default(), roomy), None, "load {load}");
    }
}

#[test]
fn a_trifle_that_comes_too_late_on_a_full_device_is_overloaded() {
    let late = |device_load| Window {
        late: 1,
        ..among(0.001, device_load, 8, 1.0)
    };
    let mut health = Health::default();
    assert_eq!(settle(&mut health, late(0.5)), None, "not for want of room");
    assert_eq!(settle(&mut health, late(0.97)), Some(Condition::Overloaded));
}

#[test]
fn work_that_moves_away_from_a_full_device_does_not_make_its_instance_flap() {
    let mut health = Health::default();
    assert_eq!(
        settle(&mut health, among(0.5, 0.97, 2, 1.0)),
        Some(Condition::Overloaded)
    );
    assert_eq!(settle(&mut health, among(0.01, 0.97, 2, 1.0)), None);
    assert_eq!(
        settle(&mut health, among(0.0, 0.97, 1, 1.0)),
        Some(Condition::Healthy),
        "nothing is asked of it"
    );
}

#[test]
fn a_job_pauses_above_the_threshold_and_resumes_with_a_margin() {
    let throttle = Throttle::default();
    let at = |online_utilization, slow_down| Observation {
        online_utilization,
        slow_down,
    };
    assert_eq!(throttle.decide(false, at(0.40, 1.0)), Verdict::Run);
    assert_eq!(throttle.decide(false, at(0.41, 1.0)), Verdict::Pause);
    assert_eq!(throttle.decide(true, at(0.39, 1.0)), Verdict::Pause);
    assert_eq!(throttle.decide(true, at(0.35, 1.0)), Verdict::Run);
    assert_eq!(throttle.decide(false, at(0.0, 1.6)), Verdict::Pause);
}

const FRONTIER: bool = false;
const DOMINATED: bool = true;

/// A variant of a model of its own on engine 0 that shares nothing.
fn candidate(ordinal: u32, own_bytes: u64, dominated: bool) -> Candidate {
    Candidate {
        ordinal,
        model: 1000 + ordinal,
        engine: 0,
        dominated,
        own_bytes,
        shared: None,
        cost_per_1k_usd: 1.0,
        quality_bound: 0.9,
        latency_ms: 1.0,
        load_ms: 1.0,
    }
}

fn place(engines: &[u32], memory_bytes: u64) -> Place {
    Place {
        engines: engines.to_vec(),
        memory_bytes,
    }
}

/// A worker of which a half are 100 bytes.
fn alone() -> [Place; 1] {
    [place(&[0], 200)]
}

fn ordinals(wishes: &[Wish]) -> Vec<u32> {
    wishes.iter().map(|wish| wish.ordinal).collect()
}

#[test]
fn the_frontier_is_wanted_smallest_first_within_the_share() {
    let same_model = |candidate| Candidate {
        model: 0,
        ..candidate
    };
    let candidates = [
        same_model(candidate(0, 80, FRONTIER)),
        same_model(candidate(1, 30, FRONTIER)),
        same_model(candidate(2, 40, FRONTIER)),
        same_model(candidate(3, 1, DOMINATED)),
    ];
    assert_eq!(ordinals(&wanted(&candidates, &alone(), 0.5)), [1, 2]);
    assert_eq!(ordinals(&wanted(&candidates, &alone(), 1.0)), [0, 1, 2]);
    assert_eq!(wanted(&candidates, &alone(), 0.0), []);
}

#[test]
fn a_model_that_others_dominate_has_its_cheapest_variant_where_there_is_room() {
    let of_model = |model, cost_per_1k_usd, candidate| Candidate {
        model,
        cost_per_1k_usd,
        ..candidate
    };
    let mut candidates = vec![
        of_model(7, 1.0, candidate(0, 60, FRONTIER)),
        of_model(8, 3.0, candidate(1, 10, DOMINATED)),
        of_model(8, 2.0, candidate(2, 40, DOMINATED)),
        of_model(8, 2.0, candidate(3, 40, DOMINATED)),
    ];
    let [frontier, best] = [Reason::Frontier, Reason::BestOfModel];
    let wish = |ordinal, reason| Wish { ordinal, reason };
    let wishes = wanted(&candidates, &alone(), 0.5);
    assert_eq!(wishes, [wish(0, frontier), wish(2, best)]);
    // Of two that cost the same the better.
    candidates[3].quality_bound = 0.95;
    let wishes = wanted(&candidates, &alone(), 0.5);
    assert_eq!(wishes, [wish(0, frontier), wish(3, best)]);
    // The frontier comes first, though it be larger.
    candidates[0].own_bytes = 61;
    assert_eq!(ordinals(&wanted(&candidates, &alone(), 0.5)), [0]);
    // A model with something on the frontier has that.
    candidates[0].model = 8;
    candidates[0].own_bytes = 60;
    assert_eq!(ordinals(&wanted(&candidates, &alone(), 0.5)), [0]);
}

#[test]
fn the_frontier_of_an_engine_that_no_worker_has_is_no_answer() {
    let mut elsewhere = candidate(0, 10, FRONTIER);
    (elsewhere.engine, elsewhere.model) = (9, 5);
    let mut here = candidate(1, 10, DOMINATED);
    here.model = 5;
    let candidates = [elsewhere, here];
    let best = Wish {
        ordinal: 1,
        reason: Reason::BestOfModel,
    };
    assert_eq!(wanted(&candidates, &alone(), 0.5), [best]);
    let both = [place(&[0], 200), place(&[9], 200)];
    assert_eq!(ordinals(&wanted(&candidates, &both, 0.5)), [0]);
    assert_eq!(wanted(&candidates, &[], 0.5), []);
}

#[test]
fn the_smallest_worker_that_can_run_a_variant_decides() {
    let on_engine = |engine, candidate| Candidate {
        engine,
        ..candidate
    };
    let candidates = [
        on_engine(0, candidate(0, 60, FRONTIER)),
        on_engine(1, candidate(1, 70, FRONTIER)),
        on_engine(1, candidate(2, 500, FRONTIER)),
    ];
    let large = [place(&[0], 2000), place(&[1], 2000)];
    assert_eq!(ordinals(&wanted(&candidates, &large, 0.5)), [0, 1, 2]);
    let one_small = [place(&[0], 2000), place(&[1], 2000), place(&[1], 200)];
    assert_eq!(ordinals(&wanted(&candidates, &one_small, 0.5)), [0, 1]);
    // Where a worker has both engines they share its memory.
    let shared = [place(&[1, 0], 240), place(&[1], 2000)];
    assert_eq!(ordinals(&wanted(&candidates, &shared, 0.5)), [0]);
}

#[test]
fn shared_weights_count_once() {
    let sharing = |group, candidate| Candidate {
        shared: Some(SharedBytes { group, bytes: 60 }),
        ..candidate
    };
    let candidates = [
        sharing(0, candidate(0, 10, FRONTIER)),
        sharing(0, candidate(1, 20, FRONTIER)),
        sharing(1, candidate(2, 15, FRONTIER)),
        sharing(0, candidate(3, 11, FRONTIER)),
    ];
    // 60 + 10 + 11, and no room for another 60; then 19 are left.
    assert_eq!(ordinals(&wanted(&candidates, &alone(), 0.5)), [0, 3]);
    let roomier = [place(&[0], 202)];
    assert_eq!(ordinals(&wanted(&candidates, &roomier, 0.5)), [0, 1, 3]);
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let sizes = (0..60u64, 0..60u64, 0..4u32);
    let rest = (0..6u32, 0..3u32, any::<bool>(), 0..4u8);
    (sizes, rest).prop_map(
        |((own_bytes, bytes, group), (model, engine, dominated, cost))| Candidate {
            model,
            engine,
            shared: (group > 0).then_some(SharedBytes { group, bytes }),
            cost_per_1k_usd: f64::from(cost),
            ..candidate(0, own_bytes, dominated)
        },
    )
}

/// Numbered by their places.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    proptest::collection::vec(any_candidate(), 0..24).prop_map(|mut candidates| {
        for (ordinal, candidate) in (0..).zip(&mut candidates) {
            candidate.ordinal = ordinal;
        }
        candidates
    })
}

fn places() -> impl Strategy<Value = Vec<Place>> {
    let one = (proptest::collection::vec(0..3u32, 0..4), 0..400u64);
    let place = |(engines, memory_bytes): (Vec<u32>, u64)| place(&engines, memory_bytes);
    proptest::collection::vec(one.prop_map(place), 0..5)
}

/// What the wished variants take on a worker, groups once, bytes.
fn taken(wished: &[&Candidate], worker: &Place) -> u64 {
    let here = wished
        .iter()
        .filter(|it| worker.engines.contains(&it.engine));
    let mut groups: BTreeMap<u32, u64> = BTreeMap::new();
    let mut own = 0;
    for candidate in here {
        own += candidate.own_bytes;
        if let Some(SharedBytes { group, bytes }) = candidate.shared {
            let there = groups.entry(group).or_default();
            *there = bytes.max(*there);
        }
    }
    own + groups.values().sum::<u64>()
}

proptest! {
    #[test]
    fn what_is_wanted_fits_everywhere_and_depends_on_no_order(
        candidates in candidates(), workers in places(), share in 0.0..=1.0f64, turn in 0..24usize
    ) {
        let wishes = wanted(&candidates, &workers, share);
        let wished: Vec<&Candidate> =
            wishes.iter().map(|wish| &candidates[wish.ordinal as usize]).collect();
        for worker in &workers {
            let most = (worker.memory_bytes as f64 * share) as u64;
            prop_assert!(taken(&wished, worker) <= most);
        }
        for candidate in &wished {
            prop_assert!(workers.iter().any(|it| it.engines.contains(&candidate.engine)));
        }
        let (mut turned, mut others) = (candidates.clone(), workers.clone());
        turned.rotate_left(turn.min(candidates.len()));
        turned.reverse();
        others.reverse();
        prop_assert_eq!(&wanted(&turned, &others, share), &wishes);
        // More workers of a kind that is there change nothing.
        others.extend(workers);
        prop_assert_eq!(wanted(&candidates, &others, share), wishes);
    }
}
