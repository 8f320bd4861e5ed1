//! On how many devices variants are loaded.

use sextant_scaling::{Footprint, Room, spread};
use sextant_types::index::VariantIx;

use crate::problems::footprint_of;

#[test]
fn variants_are_on_all_devices_where_they_fit_and_else_on_as_many_as_they_need() {
    let footprint = |variant, own_bytes, least| Footprint {
        variant: VariantIx::new(variant),
        own_bytes,
        group: variant / 2,
        shared_bytes: 50,
        least,
        load: 0,
    };
    // Two variants that share weights: 50 + 10 + 10.
    let pair = [footprint(0, 10, 1), footprint(1, 10, 2)];
    let room = |memory_bytes| Room {
        devices: 3,
        memory_bytes,
    };
    assert_eq!(spread(&pair, room(70)), [3, 3]);
    assert_eq!(spread(&pair, room(69)), [1, 2]);
    assert_eq!(spread(&pair, room(59)), [0, 0]);
    let two = [footprint(0, 10, 2), footprint(2, 20, 1)];
    assert_eq!(spread(&two, room(100)), [2, 1]);
}

#[test]
fn room_that_is_left_goes_to_copies_of_what_has_most_load() {
    let of = |variant, load| Footprint {
        load,
        ..footprint_of(variant, 40, 1)
    };
    let all = [of(0, 900), of(1, 90), of(2, 10)];
    let room = Room {
        devices: 3,
        memory_bytes: 80,
    };
    assert_eq!(spread(&all, room), [3, 2, 1], "two on each of three");
}
