//! Since when machines have been without their workers.

use sextant_scaling::presence::{Presence, longest_absence};

#[test]
fn a_machine_is_absent_since_it_was_started() {
    let mut presence = Presence::default();
    presence.begin(1000);
    assert_eq!(presence.absent(&"m0", 5000, 65_000), 60_000);
    assert_eq!(
        longest_absence(30_000),
        150_000,
        "three starts and a minute"
    );
}

#[test]
fn a_worker_that_was_announced_is_absent_since_then() {
    let mut presence = Presence::default();
    presence.begin(1000);
    presence.announced(["m0"], 3_600_000);
    assert_eq!(presence.absent(&"m0", 1000, 3_601_000), 1000);
    assert_eq!(presence.absent(&"m1", 1000, 3_601_000), 3_600_000);
    presence.keep(|machine| *machine != "m0");
    assert_eq!(presence.absent(&"m0", 1000, 3_601_000), 3_600_000);
}

#[test]
fn nobody_was_absent_before_anybody_looked() {
    let mut presence = Presence::default();
    presence.begin(3_600_000);
    assert_eq!(presence.absent(&"m0", 1000, 3_601_000), 1000);
    presence.begin(7_200_000);
    assert_eq!(presence.absent(&"m0", 1000, 7_201_000), 1000);
}
