//! Health, warmth and throttling.

use proptest::prelude::*;
use sextant_policies::{
    health::{Condition, Health, Thresholds, Window},
    throttle::{Observation, Throttle, Verdict},
    warm::{Action, Budget, Item, Presence, plan},
};

fn window(load: f64, slow_down: f64) -> Window {
    Window {
        load,
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
        load: 0.1,
        slow_down: 9.0,
        batches: 2,
    };
    assert_eq!(settle(&mut health, seen), None);
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

fn item(ordinal: u32, memory_bytes: u64, dominated: bool, presence: Presence) -> Item {
    Item {
        ordinal,
        published: true,
        dominated,
        memory_bytes,
        presence,
        idle_ms: 5000,
    }
}

const BUDGET: Budget = Budget {
    warm_bytes: 100,
    idle_unload_ms: 1000,
};

#[test]
fn the_frontier_is_warmed_smallest_first_within_the_budget() {
    let items = [
        item(0, 80, false, Presence::Absent),
        item(1, 30, false, Presence::Absent),
        item(2, 40, false, Presence::Absent),
        item(3, 1, true, Presence::Absent),
    ];
    assert_eq!(plan(&items, &BUDGET), [Action::Load(1), Action::Load(2)]);
}

#[test]
fn idle_variants_off_the_frontier_are_unloaded() {
    let mut used = item(1, 1, true, Presence::Loaded);
    used.idle_ms = 10;
    let items = [
        item(0, 1, true, Presence::Loaded),
        used,
        item(2, 1, false, Presence::Loaded),
    ];
    assert_eq!(plan(&items, &BUDGET), [Action::Unload(0)]);
}

#[test]
fn retired_variants_are_unloaded_at_once() {
    let mut retired = item(0, 1, false, Presence::Loaded);
    (retired.published, retired.idle_ms) = (false, 0);
    assert_eq!(plan(&[retired], &BUDGET), [Action::Unload(0)]);
}

proptest! {
    #[test]
    fn planning_again_after_acting_does_nothing(
        raw in proptest::collection::vec((1..60u64, any::<bool>(), 0..4u8), 0..20)
    ) {
        let presence = |kind| match kind {
            0 => Presence::Absent,
            1 => Presence::Moving,
            2 => Presence::Failed,
            _ => Presence::Loaded,
        };
        let mut items: Vec<Item> = raw
            .into_iter()
            .enumerate()
            .map(|(at, (bytes, dominated, kind))| item(at as u32, bytes, dominated, presence(kind)))
            .collect();
        for action in plan(&items, &BUDGET) {
            match action {
                Action::Load(at) => items[at as usize].presence = Presence::Loaded,
                Action::Unload(at) => items[at as usize].presence = Presence::Absent,
            }
        }
        prop_assert_eq!(plan(&items, &BUDGET), vec![]);
        let warm: u64 = items
            .iter()
            .filter(|item| !item.dominated && item.presence == Presence::Loaded)
            .map(|item| item.memory_bytes)
            .sum();
        prop_assert!(warm <= BUDGET.warm_bytes);
    }
}
