//! Answers that were computed by hand.

use sextant_partition::{Error, Limit, Limits, Model};

use super::{all, at, exact, model, oracle::assert_sound, ours, rates};

#[test]
fn rates_are_balanced_where_the_largest_first_alone_would_not() {
    // The two halves of 18 are 7+6+5 and 6+6+6. Largest first finds them, or 19 and 17.
    let models = rates(&[7.0, 6.0, 6.0, 6.0, 6.0, 5.0]);
    for found in all(&models, Limits::none(2)) {
        let found = found.unwrap();
        assert!(found.objective < 1e-9, "{found:?}");
        assert!(found.rate_imbalance() < 1e-9);
    }
    // The best division is 8+7 and 6+5+4; largest first finds 8+5+4 and 7+6.
    let found = ours(&rates(&[8.0, 7.0, 6.0, 5.0, 4.0]), Limits::none(2)).unwrap();
    assert!(found.objective < 1e-9, "{found:?}");
}

#[test]
fn the_figures_are_those_of_the_formulas() {
    // The best division is {30} and {10, 10}. The means are 25 and 20, the deviations 5 and 0.
    let models = [model(30.0, 20, 7), model(10.0, 10, 5), model(10.0, 10, 9)];
    for found in all(&models, Limits::none(2)) {
        let found = found.unwrap();
        assert!((found.objective - 0.2).abs() < 1e-9, "{found:?}");
        assert!((found.rate_deviation_rps - 5.0).abs() < 1e-9);
        assert!(found.memory_deviation_bytes.abs() < 1e-9);
        assert!((found.rate_imbalance() - 0.4).abs() < 1e-9);
        assert!(found.memory_imbalance().abs() < 1e-9);
        let mut memory: Vec<u64> = found.loads.iter().map(|load| load.memory_bytes()).collect();
        memory.sort_unstable();
        assert_eq!(memory, [27, 29]);
        assert!((found.move_cost - 3.0).abs() < 1e-9, "three loads");
        assert_eq!(found.moved, 0);
    }
}

#[test]
fn the_weight_says_whether_rates_or_memory_decide() {
    // Pairs of models balance rates (1+3, 2+2) or memory (8+2, 6+4), but not both.
    let models = [
        model(3.0, 8, 0),
        model(1.0, 6, 0),
        model(2.0, 2, 0),
        model(2.0, 4, 0),
    ];
    let with = |memory_weight| Limits {
        memory_weight,
        ..Limits::none(2)
    };
    for found in all(&models, with(0.0)) {
        assert!(found.unwrap().rate_imbalance() < 1e-9);
    }
    for found in all(&models, with(10.0)) {
        assert!(found.unwrap().memory_imbalance() < 1e-9);
    }
}

#[test]
fn dynamic_memory_counts_once_so_that_the_two_large_ones_share() {
    // A large model beside another one needs 50 + 90 or more; the two large ones together need 20 + 90.
    let models = [
        model(1.0, 10, 90),
        model(1.0, 60, 10),
        model(1.0, 10, 90),
        model(1.0, 40, 10),
    ];
    let limits = Limits {
        memory_bytes: 110,
        ..Limits::none(2)
    };
    for found in all(&models, limits) {
        let found = found.unwrap();
        assert_eq!(found.clusters[0], found.clusters[2], "{found:?}");
        assert_eq!(found.clusters[1], found.clusters[3], "{found:?}");
    }
}

#[test]
fn a_small_budget_goes_where_it_gains_most_and_a_move_pays_twice() {
    // The sub-clusters have 10+4+2 and 4. Moving the 4 leaves 12 and 8, moving the 2 leaves 14 and 6, and moving the 10
    // leaves 6 and 14. A move of the 10 costs three times as much as the others.
    let models: Vec<Model> = rates(&[10.0, 4.0, 2.0, 4.0])
        .into_iter()
        .zip([(0, 3.0), (0, 1.0), (0, 1.0), (1, 1.0)])
        .map(|(model, (now, move_cost))| Model {
            move_cost,
            ..at(model, now)
        })
        .collect();
    let with = |move_cost| Limits {
        move_cost,
        ..Limits::none(2)
    };
    for (budget, clusters, cost) in [
        (0.0, [0, 0, 0, 1], 0.0),
        (1.9, [0, 0, 0, 1], 0.0),
        (2.0, [0, 1, 0, 1], 2.0),
        (4.0, [0, 1, 1, 1], 4.0),
    ] {
        for found in [
            ours(&models, with(budget)),
            exact(&models, with(budget)).map(|of| of.partition),
        ] {
            let found = found.unwrap();
            assert_sound(&models, &with(budget), &found);
            assert_eq!(found.clusters, clusters, "{budget}: {found:?}");
            assert!((found.move_cost - cost).abs() < 1e-9);
            assert_eq!(found.moved, (cost / 2.0) as usize);
        }
    }
}

#[test]
fn nothing_moves_when_all_is_balanced_already() {
    let models = [
        at(model(5.0, 3, 1), 1),
        at(model(5.0, 3, 9), 0),
        at(model(2.0, 4, 1), 0),
        at(model(2.0, 4, 3), 1),
    ];
    let found = ours(&models, Limits::none(2)).unwrap();
    assert_eq!(found.clusters, [1, 0, 0, 1]);
    assert_eq!((found.moved, found.move_cost), (0, 0.0));
}

#[test]
fn a_new_model_pays_its_load_and_the_others_stay() {
    let models = [
        at(model(5.0, 1, 0), 0),
        at(model(4.0, 1, 0), 1),
        model(1.0, 0, 0),
    ];
    let limits = Limits {
        move_cost: 1.0,
        ..Limits::none(2)
    };
    let found = ours(&models, limits).unwrap();
    assert_eq!(found.clusters, [0, 1, 1]);
    assert_eq!((found.moved, found.move_cost), (0, 1.0));
    let unpaid = Limits {
        move_cost: 0.5,
        ..limits
    };
    assert_eq!(
        ours(&models, unpaid),
        Err(Error::TooMuch {
            limit: Limit::MoveCost,
            need: 1.0,
            most: 0.5
        })
    );
}

#[test]
fn what_moved_for_nothing_is_at_home_again() {
    // The sub-clusters have 18 and 6. Moving the 6 of the first one suffices.
    let models: Vec<Model> = rates(&[3.0, 3.0, 3.0, 3.0, 6.0, 6.0])
        .into_iter()
        .zip([0, 0, 0, 0, 1, 0])
        .map(|(model, now)| at(model, now))
        .collect();
    let found = ours(&models, Limits::none(2)).unwrap();
    assert!(found.objective < 1e-9);
    assert_eq!(found.moved, 1, "only the other 6 moves: {found:?}");
}
