//! What surrounds the engines is learnt from how busy the machine is.

use sextant_profile::{ProcessHistory, ProcessSample};

/// A second in which so much was stated and so many times as much was spent, beside an engine and an idle process.
fn second(stated_s: f64, factor: f64) -> ProcessSample {
    ProcessSample {
        wall_s: 1.0,
        cpu_s: stated_s * factor + 0.3 + 0.05,
        engine_s: 0.3,
        stated_s,
    }
}

const IDLE: ProcessSample = ProcessSample {
    wall_s: 1.0,
    cpu_s: 0.05,
    engine_s: 0.0,
    stated_s: 0.0,
};

fn idle() -> ProcessHistory {
    let mut around = ProcessHistory::default();
    (0..50).for_each(|_| around.observe(IDLE));
    around
}

#[test]
fn nothing_seen_is_what_is_stated() {
    assert_eq!(ProcessHistory::default().factor(2.0), 1.0);
    assert_eq!(idle().factor(2.0), 1.0);
}

#[test]
fn a_busy_machine_says_what_its_surroundings_take() {
    for factor in [0.3, 1.0, 7.0] {
        let mut around = idle();
        (0..100).for_each(|_| around.observe(second(1.9, factor)));
        let found = around.factor(2.0);
        assert!((found / factor - 1.0).abs() < 0.05, "{found} of {factor}");
    }
}

#[test]
fn a_small_load_promises_no_more_than_four_times_itself() {
    let mut around = idle();
    (0..1000).for_each(|_| around.observe(second(0.02, 0.1)));
    assert_eq!(around.factor(2.0), 1.0, "what is stated is promised anyway");
    // 4 times 1 core of stated time are promised, twice of what is stated for 2 cores.
    (0..1000).for_each(|_| around.observe(second(1.0, 0.1)));
    assert_eq!(around.factor(2.0), 0.5);
    // A machine that is slower than stated is believed at once.
    let mut slow = idle();
    (0..100).for_each(|_| slow.observe(second(0.02, 20.0)));
    assert!(slow.factor(2.0) > 10.0, "{}", slow.factor(2.0));
}

#[test]
fn other_work_of_the_process_is_forgotten() {
    let mut around = idle();
    (0..100).for_each(|_| around.observe(second(1.9, 0.5)));
    let before = around.factor(2.0);
    // A registration takes both cores for a minute in which hardly anybody asks.
    for _ in 0..60 {
        around.observe(ProcessSample {
            cpu_s: 2.0,
            ..second(0.001, 1.0)
        });
        around.observe(ProcessSample { cpu_s: 2.0, ..IDLE });
    }
    let after = around.factor(2.0);
    assert!((after - before).abs() < 0.05, "{before} and {after}");
}

#[test]
fn workers_of_one_process_share_its_cores() {
    let around = ProcessHistory::default();
    let of = around.of_worker(4.0, (2, false));
    assert_eq!((of.cores, of.factor, of.shared), (2.0, 1.0, false));
}
