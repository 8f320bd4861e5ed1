//! What is learnt of LOADs where the first on a device is unlike those that follow.

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, LoadResult, Options, VariantSpec,
};
use sextant_placement as placement;
use sextant_schedule::{NEVER, Nanos, Request};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

use crate::growth::variant_of;

const MS: Nanos = 1_000_000;
const DEVICE: DeviceIx = DeviceIx::new(0);
const VARIANT: VariantIx = VariantIx::new(0);

/// A device and a variant whose first LOAD takes 500 ms, the others 2.
struct World {
    controller: Controller<u32>,
    now: Nanos,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            controller: Controller::new(&Options::default()),
            now: 0,
        };
        world.up();
        let variant = VariantSpec {
            load: 2 * MS,
            first_load: 500 * MS,
            ..variant_of(0)
        };
        world.event(|c, now, actions| c.on_variant(now, VARIANT, variant, actions));
        world
    }

    fn event<R>(
        &mut self,
        event: impl FnOnce(&mut Controller<u32>, Nanos, &mut Actions<u32>) -> R,
    ) -> Actions<u32> {
        let mut actions = Actions::new();
        event(&mut self.controller, self.now, &mut actions);
        actions
    }

    fn up(&mut self) {
        let spec = DeviceSpec {
            kind: KindIx::new(0),
            pages: 4,
            slots: 1,
        };
        self.event(|c, now, actions| c.on_device_up(now, DEVICE, spec, actions));
    }

    /// Has the variant loaded for a request, which takes so long, and unloaded again; for how long the LOAD was expected.
    fn load(&mut self, took: Nanos) -> Nanos {
        let request = Request {
            payload: 0,
            rows: 1,
            deadline: NEVER,
        };
        let asked = self.event(|c, now, actions| c.on_request(now, VARIANT, request, actions));
        let [Action::Move(placement::Action::Load { expected, .. })] = asked[..] else {
            panic!("no LOAD: {asked:?}");
        };
        self.now += took;
        let loaded = LoadResult::After(took);
        let sent =
            self.event(|c, now, actions| c.on_load_result(now, DEVICE, VARIANT, loaded, actions));
        let [Action::Infer { id, .. }] = sent[..] else {
            panic!("no batch: {sent:?}");
        };
        self.event(|c, now, actions| c.on_result(now, id, None, actions));
        self.event(|c, now, actions| c.on_unloaded(now, DEVICE, VARIANT, actions));
        expected
    }
}

#[test]
fn a_first_load_teaches_nothing_of_those_that_follow() {
    let mut world = World::new();
    assert_eq!(world.load(600 * MS), 500 * MS);
    assert_eq!(world.load(4 * MS), 2 * MS, "the profile's");
    assert_eq!(world.load(4 * MS), 4 * MS, "what was learnt");
    world.event(|c, now, actions| c.on_device_down(now, DEVICE, actions));
    world.up();
    assert_eq!(
        world.load(700 * MS),
        500 * MS,
        "a device that knows nothing"
    );
    assert_eq!(world.load(4 * MS), 4 * MS);
}
