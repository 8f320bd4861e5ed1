//! When an instance counts as overloaded or interfered: each level from both sides, and the patience
//! before a change.

use sextant_health::{
    Condition,
    Condition::{Healthy, Interfered, Overloaded},
    Health, Thresholds, Window,
};

/// Levels that binary fractions hold exactly, and no patience.
const LIMITS: Thresholds = Thresholds {
    overload_enter: 0.875,
    overload_leave: 0.75,
    overload_share: 0.5,
    interfere_enter: 2.0,
    interfere_leave: 1.5,
    min_batches: 10,
    enter_windows: 1,
    leave_windows: 1,
};

/// Half of a full device that two instances fill, as fast as profiled.
const BUSY: Window = Window {
    load: 0.5,
    device_load: 1.0,
    busy_instances: 2,
    late: 0,
    slow_down: 1.0,
    batches: 100,
    run_ms: 100.0,
};

/// The same work on a device with room.
const CALM: Window = Window {
    device_load: 0.5,
    ..BUSY
};

const SLOW: Window = Window {
    slow_down: 2.0,
    ..CALM
};

/// The condition of an instance that has seen these windows, one after the other.
fn after(windows: &[Window], limits: &Thresholds) -> Condition {
    let mut health = Health::default();
    for window in windows {
        health.observe(*window, limits);
    }
    health.condition()
}

/// Of each window: what the instance said when it saw it.
fn changes(windows: &[Window], limits: &Thresholds) -> Vec<Option<Condition>> {
    let mut health = Health::default();
    let seen = windows.iter();
    seen.map(|window| health.observe(*window, limits)).collect()
}

#[test]
fn a_device_is_full_from_its_level_on() {
    assert_eq!(after(&[], &LIMITS), Healthy);
    let of = |device_load| Window {
        device_load,
        ..BUSY
    };
    assert_eq!(after(&[of(0.874)], &LIMITS), Healthy);
    assert_eq!(after(&[of(0.875)], &LIMITS), Overloaded);
    assert_eq!(after(&[of(1.0)], &LIMITS), Overloaded);
}

#[test]
fn who_does_not_take_part_in_a_full_device_is_not_overloaded() {
    // The mean of four busy instances is 1/4, and half of that takes part.
    let of = |load, late| Window {
        load,
        late,
        busy_instances: 4,
        ..BUSY
    };
    assert_eq!(after(&[of(0.125, 0)], &LIMITS), Overloaded);
    assert_eq!(after(&[of(0.124, 0)], &LIMITS), Healthy);
    assert_eq!(after(&[of(0.0, 0)], &LIMITS), Healthy);
    // Who is late suffers from it, however little it does.
    assert_eq!(after(&[of(0.0, 1)], &LIMITS), Overloaded);
    assert_eq!(after(&[of(0.01, 1)], &LIMITS), Overloaded);
    // Without a share to reach, having any work is taking part.
    let any = Thresholds {
        overload_share: 0.0,
        ..LIMITS
    };
    assert_eq!(after(&[of(0.0, 0)], &any), Healthy);
    assert_eq!(after(&[of(0.001, 0)], &any), Overloaded);
}

#[test]
fn the_mean_is_over_at_least_one_instance() {
    let alone = |load| Window {
        load,
        busy_instances: 0,
        ..BUSY
    };
    assert_eq!(after(&[alone(0.5)], &LIMITS), Overloaded);
    assert_eq!(after(&[alone(0.499)], &LIMITS), Healthy);
}

#[test]
fn an_overloaded_instance_stays_so_while_its_device_is_full_and_it_has_work() {
    let after = |device_load, load, late| {
        let then = Window {
            device_load,
            load,
            late,
            ..BUSY
        };
        after(&[BUSY, then], &LIMITS)
    };
    // Down to the lower level, and although its own part has become small.
    assert_eq!(after(0.75, 0.5, 0), Overloaded);
    assert_eq!(after(0.75, 0.001, 0), Overloaded);
    assert_eq!(after(0.75, 0.0, 1), Overloaded);
    assert_eq!(after(0.749, 0.5, 0), Healthy);
    assert_eq!(after(1.0, 0.0, 0), Healthy);
}

#[test]
fn interference_is_a_ratio_over_enough_batches() {
    let of = |slow_down, batches| Window {
        slow_down,
        batches,
        ..CALM
    };
    assert_eq!(after(&[of(2.0, 10)], &LIMITS), Interfered);
    assert_eq!(after(&[of(1.999, 10)], &LIMITS), Healthy);
    assert_eq!(after(&[of(2.0, 9)], &LIMITS), Healthy);
    // Left below the lower level, or where too few batches say anything.
    assert_eq!(after(&[SLOW, of(1.5, 10)], &LIMITS), Interfered);
    assert_eq!(after(&[SLOW, of(1.499, 10)], &LIMITS), Healthy);
    assert_eq!(after(&[SLOW, of(1.5, 9)], &LIMITS), Healthy);
}

#[test]
fn few_batches_that_run_for_long_are_enough() {
    let of = |batches, run_ms| Window {
        batches,
        run_ms,
        ..SLOW
    };
    assert_eq!(after(&[of(1, 200.0)], &LIMITS), Interfered);
    assert_eq!(after(&[of(1, 199.0)], &LIMITS), Healthy);
    let fast = Window {
        slow_down: 1.0,
        ..of(1, 200.0)
    };
    assert_eq!(after(&[SLOW, fast], &LIMITS), Healthy);
}

#[test]
fn a_window_in_which_a_batch_runs_and_none_ends_says_nothing() {
    let limits = Thresholds {
        enter_windows: 2,
        leave_windows: 2,
        ..LIMITS
    };
    let open = Window {
        batches: 0,
        slow_down: 0.0,
        run_ms: 0.0,
        ..CALM
    };
    let slowed = Some(Interfered);
    assert_eq!(
        changes(&[SLOW, open, open, SLOW], &limits),
        [None, None, None, slowed]
    );
    assert_eq!(after(&[SLOW, SLOW, open, open, open], &limits), Interfered);
    // Nothing that runs: the instance is not slowed down.
    let idle = Window { load: 0.0, ..open };
    assert_eq!(after(&[SLOW, SLOW, idle, idle], &limits), Healthy);
    // A device that is full is so whether a batch ends or not.
    let full = Window {
        device_load: 1.0,
        ..open
    };
    assert_eq!(after(&[full, full], &limits), Overloaded);
}

#[test]
fn overload_goes_before_interference() {
    let both = Window {
        slow_down: 9.0,
        ..BUSY
    };
    assert_eq!(after(&[both], &LIMITS), Overloaded);
    assert_eq!(after(&[SLOW, both], &LIMITS), Overloaded);
    assert_eq!(after(&[BUSY, SLOW], &LIMITS), Interfered);
}

#[test]
fn a_state_is_entered_and_left_after_so_many_windows_in_a_row() {
    let limits = Thresholds {
        enter_windows: 3,
        leave_windows: 2,
        ..LIMITS
    };
    let seen = changes(&[BUSY, BUSY, BUSY, BUSY, CALM, CALM, CALM], &limits);
    let (full, well) = (Some(Overloaded), Some(Healthy));
    assert_eq!(seen, [None, None, full, None, None, well, None]);
    // From one of the two to the other takes as long as from health.
    let seen = changes(&[BUSY, BUSY, BUSY, SLOW, SLOW, SLOW], &limits);
    assert_eq!(seen, [None, None, full, None, None, Some(Interfered)]);
}

#[test]
fn what_interrupts_a_row_makes_it_start_again() {
    let limits = Thresholds {
        enter_windows: 3,
        leave_windows: 2,
        ..LIMITS
    };
    let full = Some(Overloaded);
    let seen = changes(&[BUSY, BUSY, CALM, BUSY, BUSY, BUSY], &limits);
    assert_eq!(seen, [None, None, None, None, None, full]);
    // Another state interrupts as well: it counts as the first of its own row.
    let seen = changes(&[BUSY, BUSY, SLOW, SLOW, BUSY, BUSY, BUSY], &limits);
    assert_eq!(seen, [None, None, None, None, None, None, full]);
    let seen = changes(&[BUSY, BUSY, BUSY, CALM, BUSY, CALM, CALM], &limits);
    let well = Some(Healthy);
    assert_eq!(seen, [None, None, full, None, None, None, well]);
}

#[test]
fn the_default_levels_are_the_documented_ones() {
    let of = Thresholds::default();
    assert_eq!((of.overload_enter, of.overload_leave), (0.95, 0.8));
    assert_eq!((of.interfere_enter, of.interfere_leave), (2.0, 1.4));
    assert_eq!((of.overload_share, of.min_batches), (0.5, 10));
    assert_eq!((of.enter_windows, of.leave_windows), (3, 2));
}
