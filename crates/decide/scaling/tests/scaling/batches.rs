//! What a device answers in time by running one variant.

use sextant_scaling::{Policy, rate_in_time};

/// 2 ms a row and 10 ms for each batch.
fn line(rows: u32) -> f64 {
    2.0 * f64::from(rows) + 10.0
}

#[test]
fn a_batch_takes_half_the_target_and_a_lone_query_all_of_it() {
    // 20 rows in 50 ms.
    assert_eq!(rate_in_time(line, 64, 1.0, Some(100.0)), Some(400.0));
    assert_eq!(rate_in_time(line, 64, 2.0, Some(100.0)), Some(800.0));
    assert_eq!(
        rate_in_time(line, 64, 1.0, Some(23.0)),
        Some(1000.0 / 12.0),
        "alone"
    );
    assert_eq!(rate_in_time(line, 64, 1.0, Some(11.0)), None);
}

/// With one and a half times the run time as the target, a query that comes in the first half of another's
/// run is refused.
#[test]
fn a_target_that_leaves_no_time_to_wait_plans_for_idle_devices() {
    let ours = |target_ms| Policy::Sextant.planned_share(100.0, target_ms);
    assert_eq!(ours(None), 1.0);
    assert_eq!(ours(Some(900.0)), 1.0);
    assert_eq!(ours(Some(200.0)), 1.0);
    assert_eq!(ours(Some(150.0)), 0.5);
    let least = ours(Some(100.0));
    assert!(least > 0.0 && least < 0.2, "still a choice: {least}");
    for printed in [Policy::Ilp, Policy::Infaas] {
        assert_eq!(printed.planned_share(100.0, Some(101.0)), 1.0);
    }
}
