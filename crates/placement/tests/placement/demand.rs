//! The incremental demand, allocation and priority against their definitions.

use proptest::{collection::vec, prelude::*};
use sextant_placement::{Demand, ModelSpec, Options, Policy, build};
use sextant_schedule::Nanos;
use std::collections::BTreeMap;

const MODELS: u32 = 6;
const DEVICES: u32 = 4;
const CAPACITY: Nanos = 100_000_000;

#[derive(Debug, Clone, Copy)]
enum Change {
    Set(u32, Nanos),
    Place(u32, u32),
    Displace(u32, u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..MODELS, prop_oneof![Just(0), 0..2 * CAPACITY])
            .prop_map(|(model, work)| Change::Set(model, work)),
        2 => (0..MODELS, 0..DEVICES).prop_map(|(m, g)| Change::Place(m, g)),
        1 => (0..MODELS, 0..DEVICES).prop_map(|(m, g)| Change::Displace(m, g)),
    ]
}

/// The definitions, from nothing but the demands, the places and the allocations.
fn check(demand: &Demand, work: &BTreeMap<u32, Nanos>, places: &BTreeMap<u32, Vec<u32>>) {
    let load = |device| -> Nanos { (0..MODELS).map(|m| demand.allocation(m, device)).sum() };
    for device in 0..DEVICES {
        assert_eq!(demand.load(device), load(device), "load of device {device}");
    }
    for model in 0..MODELS {
        let of = work.get(&model).copied().unwrap_or(0);
        let on: &[u32] = places.get(&model).map_or(&[], |on| on);
        assert_eq!(demand.of(model), of);
        let allocated: Nanos = (0..DEVICES).map(|g| demand.allocation(model, g)).sum();
        if on.is_empty() {
            assert_eq!(allocated, 0);
            assert!((demand.priority(model) - of as f64).abs() < f64::EPSILON);
            continue;
        }
        assert_eq!(allocated, of, "the allocations of model {model}");
        let fulfilled: f64 = on
            .iter()
            .filter(|device| load(**device) > 0)
            .map(|device| {
                let part = demand.allocation(model, *device) as f64;
                part * CAPACITY as f64 / load(*device) as f64
            })
            .sum();
        let priority = demand.priority(model);
        assert!((priority - (of as f64 - fulfilled)).abs() <= 1e-6 * fulfilled.max(1.0));
        let idle = on.iter().all(|device| load(*device) < CAPACITY);
        assert!(
            !idle || of == 0 || priority < 0.0,
            "model {model} on devices with capacity to spare: {priority}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_incrementally_is_what_the_definitions_say(
        changes in vec(change(), 1..120),
    ) {
        let mut demand = Demand::new(CAPACITY);
        let (mut work, mut places) = (BTreeMap::new(), BTreeMap::<u32, Vec<u32>>::new());
        for change in changes {
            match change {
                Change::Set(model, nanos) => {
                    demand.set(model, nanos);
                    work.insert(model, nanos);
                }
                Change::Place(model, device) => {
                    demand.place(model, device);
                    let on = places.entry(model).or_default();
                    if !on.contains(&device) {
                        on.push(device);
                    }
                }
                Change::Displace(model, device) => {
                    demand.displace(model, device);
                    if let Some(on) = places.get_mut(&model) {
                        on.retain(|other| *other != device);
                    }
                }
            }
            check(&demand, &work, &places);
        }
    }
}

#[test]
fn a_demand_is_split_in_proportion_to_one_over_what_others_load_a_device_with() {
    let mut demand = Demand::new(CAPACITY);
    demand.place(0, 0);
    demand.place(1, 1);
    demand.set(0, 9_000_000);
    demand.set(1, 29_000_000);
    demand.place(2, 0);
    demand.place(2, 1);
    demand.set(2, 40_000_000);
    // With the floor of 1 ms the others' loads are 10 and 30 ms: three to one.
    assert_eq!(demand.allocation(2, 0), 30_000_000);
    assert_eq!(demand.allocation(2, 1), 10_000_000);
    for _ in 0..3 {
        demand.set(2, 40_000_000);
        assert_eq!(
            demand.allocation(2, 0),
            30_000_000,
            "shares that swap places"
        );
    }
}

#[test]
fn demand_follows_the_waiting_requests() {
    for policy in Policy::ALL {
        let mut placement = build(&Options::of(*policy));
        let spec = ModelSpec {
            pages: 7,
            shared: None,
            load: 8_000_000,
            run: 3_000_000,
        };
        let mut actions = vec![];
        placement.on_model(0, 0, spec, &mut actions);
        let deadlines: Vec<Nanos> = (0..10).map(|at| 100_000_000 + at).collect();
        let mut kept = vec![];
        for deadline in &deadlines {
            placement.on_request(0, 0, *deadline, &mut actions);
            kept.push(placement.demand().of(0));
        }
        assert!(kept.is_sorted() && kept[0] > 0, "{policy}: {kept:?}");
        assert!((placement.demand().priority(0) - kept[9] as f64).abs() < 1e-9);
        for (deadline, before) in deadlines.iter().zip(&kept).rev() {
            assert_eq!(placement.demand().of(0), *before, "{policy}");
            placement.on_dropped(0, 0, *deadline, &mut actions);
        }
        assert_eq!(placement.demand().of(0), 0, "{policy}");
        // Without a device nothing can be loaded.
        assert_eq!(actions, []);
    }
}

#[test]
fn a_demand_on_many_devices_is_spread_over_all_and_comes_back_to_few() {
    let mut demand = Demand::new(CAPACITY);
    demand.set_devices(10);
    (0..10).for_each(|device| demand.place(0, device));
    demand.place(1, 3);
    demand.set(0, 5 * CAPACITY);
    demand.set(1, CAPACITY);
    let loads: Vec<Nanos> = (0..10).map(|device| demand.load(device)).collect();
    assert_eq!(loads.iter().sum::<Nanos>(), 6 * CAPACITY, "{loads:?}");
    assert!(loads[3] > loads[4] && loads[4] == CAPACITY / 2);
    assert!(demand.priority(0) < 0.0, "there is capacity to spare");
    assert!(demand.priority(1) > 0.0, "not where the other one is");
    assert!(demand.is_spare());
    demand.set(0, 12 * CAPACITY);
    assert!(demand.priority(0) > 0.0 && !demand.is_spare());
    (2..10).for_each(|device| demand.displace(0, device));
    let parts: Nanos = (0..2).map(|device| demand.allocation(0, device)).sum();
    assert_eq!((parts, demand.load(5)), (12 * CAPACITY, 0));
}
