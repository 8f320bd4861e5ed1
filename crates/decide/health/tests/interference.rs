//! What is done about instances that something else slows down.

use proptest::prelude::*;
use sextant_health::interference::{
    CoreUse, Mitigation, Order, Patience, Place, may_spread, quieter_cores,
};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

fn place(worker: DeviceIx, busy_share: f64, interfered: &[u32]) -> Place {
    Place {
        worker,
        kind: KindIx::new(0),
        busy_share,
        interfered: interfered.iter().copied().map(VariantIx::new).collect(),
        serves: Vec::new(),
    }
}

fn to(variant: VariantIx, from: DeviceIx, to: &[u32]) -> Order {
    Order::Move {
        variant,
        from,
        to: to.iter().copied().map(DeviceIx::new).collect(),
    }
}

#[test]
fn other_cores_come_first_then_the_least_busy_worker_that_is_alike() {
    let mut relief = Mitigation::new(Patience {
        settle_ms: 10_000,
        again_ms: 60_000,
    });
    let other_kind = Place {
        kind: KindIx::new(1),
        ..place(DeviceIx::new(5), 0.0, &[])
    };
    let places = [
        place(DeviceIx::new(0), 0.2, &[7, 8]),
        place(DeviceIx::new(1), 0.6, &[]),
        place(DeviceIx::new(2), 0.1, &[]),
        place(DeviceIx::new(3), 0.0, &[9]),
        other_kind,
    ];
    let repins = [0, 3].map(|worker| Order::Repin {
        worker: DeviceIx::new(worker),
    });
    assert_eq!(relief.look(0, &places), repins);
    assert_eq!(relief.look(5_000, &places), [], "they have not answered");
    relief.on_repinned(DeviceIx::new(0), false);
    relief.on_repinned(DeviceIx::new(3), true);
    let moves = [
        to(VariantIx::new(7), DeviceIx::new(0), &[2, 1]),
        to(VariantIx::new(8), DeviceIx::new(0), &[2, 1]),
    ];
    assert_eq!(relief.look(6_000, &places), moves);
    // What has recovered needs nothing; other cores have not helped worker 3.
    let later = [
        place(DeviceIx::new(0), 0.2, &[]),
        place(DeviceIx::new(1), 0.6, &[]),
        place(DeviceIx::new(3), 0.0, &[9]),
    ];
    assert_eq!(relief.look(9_999, &later), []);
    assert_eq!(
        relief.look(10_000, &later),
        [to(VariantIx::new(9), DeviceIx::new(3), &[0, 1])]
    );
    // Cores are looked for again after a minute.
    assert_eq!(
        relief.look(60_000, &later),
        [Order::Repin {
            worker: DeviceIx::new(3)
        }]
    );
}

#[test]
fn nothing_moves_where_everyone_is_slowed_down_or_alone() {
    let mut relief = Mitigation::default();
    let places = [
        place(DeviceIx::new(0), 0.2, &[7]),
        place(DeviceIx::new(1), 0.2, &[7]),
    ];
    assert_eq!(relief.look(0, &places).len(), 2);
    relief.on_repinned(DeviceIx::new(0), false);
    relief.on_repinned(DeviceIx::new(1), false);
    assert_eq!(relief.look(1, &places), []);
    assert_eq!(relief.look(1, &places[..1]), []);
}

#[test]
fn a_worker_that_comes_back_is_told_again() {
    let mut relief = Mitigation::default();
    let places = [
        place(DeviceIx::new(0), 0.2, &[7]),
        place(DeviceIx::new(1), 0.2, &[]),
    ];
    let repin = [Order::Repin {
        worker: DeviceIx::new(0),
    }];
    assert_eq!(relief.look(0, &places), repin);
    relief.on_repinned(DeviceIx::new(0), false);
    relief.forget(DeviceIx::new(0));
    assert_eq!(relief.look(1, &places), repin);
    // One that never answers does not hold the move up for ever.
    assert_eq!(
        relief.look(30_000, &places),
        [to(VariantIx::new(7), DeviceIx::new(0), &[1])]
    );
}

#[test]
fn workers_that_are_slowed_down_together_do_not_all_leave_their_work_to_one() {
    let mut relief = Mitigation::default();
    let (variant, quiet) = (VariantIx::new(7), DeviceIx::new(2));
    let of = |worker: u32, busy_share: f64, interfered: &[u32]| Place {
        serves: vec![variant],
        ..place(DeviceIx::new(worker), busy_share, interfered)
    };
    let leave = |worker: u32| Order::Leave {
        variant,
        from: DeviceIx::new(worker),
        stay: vec![quiet],
    };
    let both = [of(0, 0.3, &[7]), of(1, 0.3, &[7]), of(2, 0.3, &[])];
    assert_eq!(relief.look(0, &both).len(), 2);
    relief.on_repinned(DeviceIx::new(0), false);
    relief.on_repinned(DeviceIx::new(1), false);
    assert_eq!(relief.look(1_000, &both), [leave(0)]);
    assert_eq!(relief.look(2_000, &both), [leave(0)], "it has not gone yet");
    // It has gone, and the one that has its work now does not show that yet, or has room for it.
    let one = [of(1, 0.3, &[7]), of(2, 0.3, &[])];
    assert_eq!(relief.look(3_000, &one), []);
    assert_eq!(relief.look(11_999, &one), []);
    assert_eq!(relief.look(12_000, &one), [leave(1)]);
}

fn cores(others: &[f64]) -> Vec<CoreUse> {
    let numbered = others.iter().enumerate();
    let core = numbered.map(|(core, others)| CoreUse {
        core,
        others: *others,
    });
    core.collect()
}

#[test]
fn threads_move_to_cores_that_others_leave_alone() {
    let four = cores(&[0.9, 0.1, 0.0, 0.8]);
    assert_eq!(quieter_cores(&four, &[0, 3], 2), Some(vec![1, 2]));
    assert_eq!(quieter_cores(&four, &[0], 1), Some(vec![2]));
    // Where the operating system chose, half of the time was not theirs.
    assert_eq!(quieter_cores(&four, &[], 2), Some(vec![1, 2]));
    // Less than a fifth of the time of each is to be gained, however many they are.
    let little = cores(&[0.15, 0.15, 0.0, 0.0]);
    assert_eq!(quieter_cores(&little, &[0, 1], 2), None);
    // Nothing to gain, no core left, others everywhere, nothing known.
    assert_eq!(quieter_cores(&four, &[1, 2], 2), None);
    assert_eq!(quieter_cores(&cores(&[0.1, 0.0]), &[], 2), None);
    assert_eq!(quieter_cores(&cores(&[1.0, 0.6]), &[0], 1), None);
    assert_eq!(quieter_cores(&[], &[0], 1), None);
    assert_eq!(quieter_cores(&four, &[0], 0), None);
}

#[test]
fn threads_as_many_as_cores_keep_to_those_that_others_leave_alone() {
    let four = cores(&[0.9, 0.1, 0.0, 0.8]);
    for now in [&[][..], &[0, 1, 2, 3]] {
        assert_eq!(quieter_cores(&four, now, 4), Some(vec![1, 2]));
    }
    assert_eq!(quieter_cores(&four, &[1, 2], 4), None);
    assert_eq!(quieter_cores(&cores(&[0.9, 0.8]), &[], 2), None);
    // They have all again once others have gone, and not before.
    assert!(!may_spread(&four, &[1, 2], 4));
    assert!(may_spread(&cores(&[0.1, 0.1, 0.0, 0.2]), &[1, 2], 4));
    let gone = cores(&[0.0, 0.0]);
    assert!(!may_spread(&gone, &[], 2) && !may_spread(&gone, &[0, 1], 2));
    assert!(!may_spread(&gone, &[0], 1));
}

#[test]
fn a_variant_that_quiet_workers_serve_already_leaves_where_they_have_time() {
    let serving = |worker: u32, busy_share: f64, interfered: &[u32]| Place {
        serves: vec![VariantIx::new(7)],
        ..place(DeviceIx::new(worker), busy_share, interfered)
    };
    let orders = |places: &[Place]| {
        let mut relief = Mitigation::default();
        relief.look(0, places);
        relief.on_repinned(DeviceIx::new(0), false);
        relief.look(1, places)
    };
    let places = [serving(0, 0.3, &[7]), serving(1, 0.4, &[])];
    let leave = Order::Leave {
        variant: VariantIx::new(7),
        from: DeviceIx::new(0),
        stay: vec![DeviceIx::new(1)],
    };
    assert_eq!(orders(&places), [leave]);
    let busy = [serving(0, 0.3, &[7]), serving(1, 0.7, &[])];
    assert_eq!(orders(&busy), [], "together they are more than full");
}

proptest! {
    #[test]
    fn new_cores_are_as_many_and_used_less(
        others in prop::collection::vec(0.0..1.0f64, 1..9),
        now in prop::collection::btree_set(0..8usize, 0..8),
        count in 0..9usize,
    ) {
        let all = cores(&others);
        let now: Vec<usize> = now.into_iter().filter(|core| *core < all.len()).collect();
        if let Some(chosen) = quieter_cores(&all, &now, count) {
            prop_assert!(!chosen.is_empty() && chosen.len() <= count.min(all.len() - 1));
            prop_assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
            let mean = |of: &[usize]| {
                of.iter().map(|core| others[*core]).sum::<f64>() / of.len() as f64
            };
            let here: Vec<usize> = if now.is_empty() { (0..all.len()).collect() } else { now };
            prop_assert!(mean(&chosen) < mean(&here));
        }
    }
}
