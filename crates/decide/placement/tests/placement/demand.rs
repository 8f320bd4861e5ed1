//! The incremental demand, allocation and priority against their definitions.

use proptest::{collection::vec, prelude::*, sample::select};
use sextant_placement::{Demand, Options, Policy, VariantSpec, build};
use sextant_schedule::Nanos;
use sextant_types::index::{DeviceIx, VariantIx};
use std::collections::BTreeMap;

const VARIANTS: [VariantIx; 6] = VariantIx::first();
const DEVICES: [DeviceIx; 10] = DeviceIx::first();
/// Devices that change in the random test.
const FEW: usize = 4;
const CAPACITY: Nanos = 100_000_000;

#[derive(Debug, Clone, Copy)]
enum Change {
    Set(VariantIx, Nanos),
    Place(VariantIx, DeviceIx),
    Displace(VariantIx, DeviceIx),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (select(&VARIANTS[..]), prop_oneof![Just(0), 0..2 * CAPACITY])
            .prop_map(|(variant, work)| Change::Set(variant, work)),
        2 => (select(&VARIANTS[..]), select(&DEVICES[..FEW])).prop_map(|(m, g)| Change::Place(m, g)),
        1 => (select(&VARIANTS[..]), select(&DEVICES[..FEW])).prop_map(|(m, g)| Change::Displace(m, g)),
    ]
}

/// The definitions, from nothing but the demands, the places and the allocations.
fn check(
    demand: &Demand,
    work: &BTreeMap<VariantIx, Nanos>,
    places: &BTreeMap<VariantIx, Vec<DeviceIx>>,
) {
    let load = |device| -> Nanos { VARIANTS.iter().map(|m| demand.allocation(*m, device)).sum() };
    for device in DEVICES {
        assert_eq!(demand.load(device), load(device), "load of device {device}");
    }
    for variant in VARIANTS {
        let of = work.get(&variant).copied().unwrap_or(0);
        let on: &[DeviceIx] = places.get(&variant).map_or(&[], |on| on);
        assert_eq!(demand.of(variant), of);
        let allocated: Nanos = DEVICES.iter().map(|g| demand.allocation(variant, *g)).sum();
        if on.is_empty() {
            assert_eq!(allocated, 0);
            assert!((demand.priority(variant) - of as f64).abs() < f64::EPSILON);
            continue;
        }
        assert_eq!(allocated, of, "the allocations of variant {variant}");
        let fulfilled: f64 = on
            .iter()
            .filter(|device| load(**device) > 0)
            .map(|device| {
                let part = demand.allocation(variant, *device) as f64;
                part * CAPACITY as f64 / load(*device) as f64
            })
            .sum();
        let priority = demand.priority(variant);
        assert!((priority - (of as f64 - fulfilled)).abs() <= 1e-6 * fulfilled.max(1.0));
        let idle = on.iter().all(|device| load(*device) < CAPACITY);
        assert!(
            !idle || of == 0 || priority < 0.0,
            "variant {variant} on devices with capacity to spare: {priority}"
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
        let (mut work, mut places) = (BTreeMap::new(), BTreeMap::<VariantIx, Vec<DeviceIx>>::new());
        for change in changes {
            match change {
                Change::Set(variant, nanos) => {
                    demand.set(variant, nanos);
                    work.insert(variant, nanos);
                }
                Change::Place(variant, device) => {
                    demand.place(variant, device);
                    let on = places.entry(variant).or_default();
                    if !on.contains(&device) {
                        on.push(device);
                    }
                }
                Change::Displace(variant, device) => {
                    demand.displace(variant, device);
                    if let Some(on) = places.get_mut(&variant) {
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
    demand.place(VARIANTS[0], DEVICES[0]);
    demand.place(VARIANTS[1], DEVICES[1]);
    demand.set(VARIANTS[0], 9_000_000);
    demand.set(VARIANTS[1], 29_000_000);
    demand.place(VARIANTS[2], DEVICES[0]);
    demand.place(VARIANTS[2], DEVICES[1]);
    demand.set(VARIANTS[2], 40_000_000);
    // With the floor of 1 ms the others' loads are 10 and 30 ms: three to one.
    assert_eq!(demand.allocation(VARIANTS[2], DEVICES[0]), 30_000_000);
    assert_eq!(demand.allocation(VARIANTS[2], DEVICES[1]), 10_000_000);
    for _ in 0..3 {
        demand.set(VARIANTS[2], 40_000_000);
        assert_eq!(
            demand.allocation(VARIANTS[2], DEVICES[0]),
            30_000_000,
            "shares that swap places"
        );
    }
}

#[test]
fn demand_follows_the_waiting_requests() {
    for policy in Policy::ALL {
        let mut placement = build(&Options::of(*policy));
        let spec = VariantSpec {
            pages: 7,
            shared: None,
            load: 8_000_000,
            first_load: 0,
            run: 3_000_000,
        };
        let mut actions = vec![];
        placement.on_variant(0, VARIANTS[0], spec, &mut actions);
        let deadlines: Vec<Nanos> = (0..10).map(|at| 100_000_000 + at).collect();
        let mut kept = vec![];
        for deadline in &deadlines {
            placement.on_request(0, VARIANTS[0], *deadline, &mut actions);
            kept.push(placement.demand().of(VARIANTS[0]));
        }
        assert!(kept.is_sorted() && kept[0] > 0, "{policy}: {kept:?}");
        assert!((placement.demand().priority(VARIANTS[0]) - kept[9] as f64).abs() < 1e-9);
        for (deadline, before) in deadlines.iter().zip(&kept).rev() {
            assert_eq!(placement.demand().of(VARIANTS[0]), *before, "{policy}");
            placement.on_dropped(0, VARIANTS[0], *deadline, &mut actions);
        }
        assert_eq!(placement.demand().of(VARIANTS[0]), 0, "{policy}");
        // Without a device nothing can be loaded.
        assert_eq!(actions, []);
    }
}

#[test]
fn a_demand_on_many_devices_is_spread_over_all_and_comes_back_to_few() {
    let mut demand = Demand::new(CAPACITY);
    demand.set_devices(10);
    for device in DEVICES {
        demand.place(VARIANTS[0], device);
    }
    demand.place(VARIANTS[1], DEVICES[3]);
    demand.set(VARIANTS[0], 5 * CAPACITY);
    demand.set(VARIANTS[1], CAPACITY);
    let loads: Vec<Nanos> = DEVICES.iter().map(|device| demand.load(*device)).collect();
    assert_eq!(loads.iter().sum::<Nanos>(), 6 * CAPACITY, "{loads:?}");
    assert!(loads[3] > loads[4] && loads[4] == CAPACITY / 2);
    assert!(
        demand.priority(VARIANTS[0]) < 0.0,
        "there is capacity to spare"
    );
    assert!(
        demand.priority(VARIANTS[1]) > 0.0,
        "not where the other one is"
    );
    assert!(demand.is_spare());
    demand.set(VARIANTS[0], 12 * CAPACITY);
    assert!(demand.priority(VARIANTS[0]) > 0.0 && !demand.is_spare());
    for device in &DEVICES[2..] {
        demand.displace(VARIANTS[0], *device);
    }
    let parts: Nanos = DEVICES[..2]
        .iter()
        .map(|device| demand.allocation(VARIANTS[0], *device))
        .sum();
    assert_eq!((parts, demand.load(DEVICES[5])), (12 * CAPACITY, 0));
}
