//! What is learnt of UNLOADs.

use sextant_controller::{Action, Actions, Controller, DeviceSpec, LoadResult, Options};
use sextant_placement as placement;
use sextant_schedule::{Nanos, Request};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

use crate::growth::variant_of;

const MS: Nanos = 1_000_000;
const DEVICE: DeviceIx = DeviceIx::new(0);
const LEAVING: VariantIx = VariantIx::new(0);
const WANTED: VariantIx = VariantIx::new(1);

/// A variant that is on the device is retired.
fn retire(controller: &mut Controller<u32>, now: Nanos) {
    let mut actions = Actions::new();
    controller.on_variant(now, LEAVING, variant_of(0), &mut actions);
    controller.on_load_result(now, DEVICE, LEAVING, LoadResult::Found, &mut actions);
    controller.on_retired(now, LEAVING, &mut actions);
    let unload = placement::Action::Unload {
        device: DEVICE,
        variant: LEAVING,
    };
    assert_eq!(actions, [Action::Move(unload)]);
}

/// A LOAD of 8 ms for a request that takes 5 ms. It is asked for while an UNLOAD is under way.
#[test]
fn an_unload_is_expected_to_take_as_long_as_the_last_ones() {
    let mut controller: Controller<u32> = Controller::new(&Options::default());
    let mut actions = Actions::new();
    let spec = DeviceSpec {
        kind: KindIx::new(0),
        pages: 4,
        slots: 1,
    };
    controller.on_device_up(0, DEVICE, spec, &mut actions);
    controller.on_variant(0, WANTED, variant_of(1), &mut actions);
    retire(&mut controller, 0);
    controller.on_unload_result(60 * MS, DEVICE, LEAVING, 60 * MS, &mut actions);
    retire(&mut controller, 100 * MS);
    let request = Request {
        payload: 0,
        rows: 1,
        deadline: 165 * MS,
    };
    controller.on_request(100 * MS, WANTED, request, &mut actions);
    assert_eq!(actions, [], "a LOAD after 60 ms would be too late");
    controller.on_unload_result(110 * MS, DEVICE, LEAVING, 10 * MS, &mut actions);
    let [Action::Move(placement::Action::Load { variant, .. })] = actions[..] else {
        panic!("no LOAD: {actions:?}");
    };
    assert_eq!(variant, WANTED);
}
