//! Run times by rows and size, and their buckets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::{collection::vec, prelude::*};
use sextant_controller::{
    Action, Controller, DeviceSpec, LoadResult, OnKind, Options, Shape, Sharing, VariantSpec,
};
use sextant_profile::{BUCKET, Run, Surface};
use sextant_schedule::{LatencyTable, NEVER, QueueSpec, Request};
use sextant_types::index::{DeviceIx, KindIx, TenantIx, VariantIx};

const ROWS: u32 = 8;

/// A fixed part, one for each row, and one that grows with the size.
fn table(fixed: u64, per_row: u64, size: u64) -> LatencyTable {
    let rows = 1..=u64::from(ROWS);
    LatencyTable::new(rows.map(|rows| fixed + rows * per_row * size).collect()).unwrap()
}

fn linear(fixed: u64, per_row: u64, sizes: &[u64]) -> Surface {
    let tables = sizes
        .iter()
        .map(|size| (*size, table(fixed, per_row, *size)));
    Surface::new(tables.collect(), ROWS).unwrap()
}

#[test]
fn what_grows_with_the_size_is_exact_between_and_beyond_measured_sizes() {
    let surface = linear(0, 100, &[8, 16, 64, 512]);
    for (rows, size) in [(1, 8), (3, 11), (8, 500), (2, 5_000)] {
        assert_eq!(surface.of(rows, size), u64::from(rows) * 100 * size);
    }
    assert_eq!(surface.of(2, 1), surface.of(2, 8), "as of the smallest");
    assert!(surface.is_beyond(513) && !surface.is_beyond(512));
    assert!((surface.share(512, 8) - 64.0).abs() < 1e-9);
    assert_eq!(surface.table(11).of(3), surface.of(3, 11));
}

#[test]
fn what_grows_faster_is_never_expected_too_soon() {
    let square = |size: u64| table(0, size, size);
    let tables = [10, 20, 40].map(|size| (size, square(size)));
    let surface = Surface::new(tables.to_vec(), ROWS).unwrap();
    for size in [13, 25, 39, 40, 77, 200] {
        let exact = square(size).of(4);
        let expected = surface.of(4, size);
        assert!(
            expected >= exact * 99 / 100,
            "{size}: {expected} for {exact}"
        );
    }
}

#[test]
fn buckets_are_wide_where_the_size_matters_little() {
    let sizes = [8, 16, 32, 64, 128, 256, 512];
    let count = |surface: &Surface| {
        let mut ends: Vec<u64> = (8..=512).map(|size| surface.bucket(size).1).collect();
        ends.dedup();
        ends.len()
    };
    let narrow = count(&linear(0, 1_000, &sizes));
    let wide = count(&linear(4_000_000, 1_000, &sizes));
    assert!(narrow > 20 && wide < 10, "{narrow} and {wide}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever was measured: longer and larger never seems faster, each size lies in one bucket,
    /// and within a bucket that was measured times differ by no more than was said.
    #[test]
    fn surfaces_never_decrease_and_buckets_keep_their_word(
        measured in vec((1..2_000u64, 1..1_000_000u64, 0..50_000u64), 1..8),
        sizes in vec(1..6_000u64, 1..40),
    ) {
        let tables = measured.iter().map(|(size, fixed, more)| {
            let rows = (0..u64::from(ROWS)).map(|row| fixed + row * more);
            (*size, LatencyTable::new(rows.collect()).unwrap())
        });
        let surface = Surface::new(tables.collect(), ROWS).unwrap();
        let smallest = measured.iter().map(|of| of.0).min().unwrap();
        let mut sizes = sizes;
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            for rows in 1..=ROWS {
                prop_assert!(surface.of(rows, pair[0]) <= surface.of(rows, pair[1]));
            }
            prop_assert!(surface.bucket(pair[0]).1 <= surface.bucket(pair[1]).1);
        }
        for size in sizes {
            let (from, to) = surface.bucket(size);
            prop_assert!(from <= size && size <= to, "{size} in {from} to {to}");
            prop_assert_eq!(surface.bucket(to).1, to);
            if !surface.is_beyond(to) && from > smallest {
                let (first, last) = (surface.of(ROWS, from), surface.of(ROWS, to));
                prop_assert!(last as f64 <= first as f64 * BUCKET || from == to);
            }
        }
    }
}

/// What a long query takes says nothing of short ones.
#[test]
fn long_queries_that_run_slower_leave_what_is_known_of_short_ones() {
    let mut controller = Controller::<u32>::new(&Options::default());
    let mut actions = Vec::new();
    let surface = linear(0, 100_000, &[8, 16, 64, 512]);
    let spec = DeviceSpec {
        kind: KindIx::new(0),
        pages: 8,
        slots: 1,
    };
    controller.on_device_up(0, DeviceIx::new(0), spec, &mut actions);
    let variant = VariantSpec {
        pages: 1,
        shared: None,
        queue: QueueSpec {
            max_rows: ROWS,
            planned_rows: u32::MAX,
            batched: true,
            slots: 1,
            latency: surface.table(8),
            max_waiting_rows: 100,
            tenant: TenantIx::new(0),
            priority: 100,
            weight: 1.0,
            price: 1.0,
        },
        surface: Some(surface.clone()),
        load: 1,
        first_load: 0,
        kinds: vec![OnKind {
            kind: KindIx::new(0),
            latency: None,
            surface: None,
            load: 0,
            price: 1.0,
            planned_rows: u32::MAX,
        }],
    };
    controller.on_variant(0, VariantIx::new(0), variant, &mut actions);
    controller.on_load_result(
        0,
        DeviceIx::new(0),
        VariantIx::new(0),
        LoadResult::Found,
        &mut actions,
    );
    let mut now = 0;
    let mut run = |size: u64, slower: u64| {
        let shape = Shape {
            size,
            sharing: Sharing::Near,
        };
        let request = Request {
            payload: 0,
            rows: 1,
            deadline: NEVER,
        };
        let mut actions = Vec::new();
        controller.on_shaped_request(now, (VariantIx::new(0), shape), request, &mut actions);
        let Some(Action::Infer { expected, id, .. }) = actions.pop() else {
            panic!("the device is idle: {actions:?}");
        };
        let nanos = surface.of(1, size) * slower;
        now += nanos;
        let ran = Run {
            rows: 1,
            nanos,
            mhz: None,
        };
        controller.on_result(now, id, Some(ran), &mut actions);
        let excesses: Vec<_> = controller.excesses(VariantIx::new(0)).collect();
        (expected, excesses)
    };
    run(8, 1);
    let (short, known) = run(8, 1);
    let (long, _) = run(512, 1);
    for _ in 0..20 {
        run(512, 3);
    }
    let (slowed, excesses) = run(512, 3);
    assert!(slowed > 2 * long, "{slowed} after {long}");
    let of_short = excesses.iter().filter(|excess| excess.sizes.1 == 8);
    assert_eq!(of_short.copied().collect::<Vec<_>>(), known);
    assert!(excesses.len() > known.len(), "{excesses:?}");
    assert_eq!(run(8, 1).0, short);
}
