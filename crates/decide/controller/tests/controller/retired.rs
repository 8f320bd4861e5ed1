//! What is kept of variants that have come and gone.

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, LoadResult, Options, Shape, Sharing, VariantSpec,
};
use sextant_placement as placement;
use sextant_placement::Presence;
use sextant_profile::{Run, Surface};
use sextant_schedule::{LatencyTable, NEVER, Nanos, Request};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

use crate::growth::variant_of;

const MS: Nanos = 1_000_000;
const DEVICE: DeviceIx = DeviceIx::new(0);
const FIRST: VariantIx = VariantIx::new(0);

/// More variants than are kept after they have gone.
const MANY: u32 = 400;

/// A device whose LOADs take 20 ms in place of 8.
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
        let spec = DeviceSpec {
            kind: KindIx::new(0),
            pages: 4,
            slots: 1,
        };
        world.act(|c, now, actions| {
            c.on_device_up(now, DEVICE, spec, actions);
        });
        world
    }

    fn act(
        &mut self,
        event: impl FnOnce(&mut Controller<u32>, Nanos, &mut Actions<u32>),
    ) -> Actions<u32> {
        let mut actions = Actions::new();
        event(&mut self.controller, self.now, &mut actions);
        actions
    }

    /// Publishes a variant and has it answer a query. The queries of every other variant come in several sizes. Returns
    /// for how long its LOAD was expected.
    fn answer(&mut self, variant: VariantIx) -> Nanos {
        let table = LatencyTable::linear(1.0, 4.0, 8).unwrap();
        let surface = Surface::new(vec![(100, table)], 8);
        let spec = VariantSpec {
            surface: surface.filter(|_| variant.get() % 2 == 1),
            ..variant_of(variant.get())
        };
        self.act(|c, now, actions| c.on_variant(now, variant, spec, actions));
        let request = Request {
            payload: 0,
            rows: 1,
            deadline: NEVER,
        };
        let shape = Shape {
            size: 100,
            sharing: Sharing::Near,
        };
        let asked = self
            .act(|c, now, actions| c.on_shaped_request(now, (variant, shape), request, actions));
        let [Action::Move(placement::Action::Load { expected, .. })] = asked[..] else {
            panic!("no LOAD: {asked:?}");
        };
        self.now += 20 * MS;
        let loaded = LoadResult::After(20 * MS);
        let sent =
            self.act(|c, now, actions| c.on_load_result(now, DEVICE, variant, loaded, actions));
        let [Action::Infer { id, .. }] = sent[..] else {
            panic!("no batch: {sent:?}");
        };
        self.now += 6 * MS;
        let run = Run {
            rows: 1,
            nanos: 6 * MS,
            mhz: None,
        };
        self.act(|c, now, actions| c.on_result(now, id, Some(run), actions));
        expected
    }

    /// Retires a variant, which the device is asked to unload.
    fn retire(&mut self, variant: VariantIx) {
        let actions = self.act(|c, now, actions| {
            c.on_retired(now, variant, actions);
        });
        let unload = placement::Action::Unload {
            device: DEVICE,
            variant,
        };
        assert_eq!(actions, [Action::Move(unload)]);
    }

    fn unloaded(&mut self, variant: VariantIx) {
        self.now += MS;
        self.act(|c, now, actions| c.on_unload_result(now, DEVICE, variant, MS, actions));
    }

    /// Variants come, answer, and go.
    fn pass(&mut self, numbers: std::ops::Range<u32>) {
        for variant in numbers.map(VariantIx::new) {
            self.answer(variant);
            self.retire(variant);
            self.unloaded(variant);
        }
    }

    fn knows(&self, variant: VariantIx) -> bool {
        self.controller.tenant(variant).is_some()
    }
}

#[test]
fn what_is_kept_has_a_bound_however_many_variants_come_and_go() {
    let mut world = World::new();
    world.pass(0..MANY);
    let kept = world.controller.entries();
    world.pass(MANY..5 * MANY);
    assert_eq!(world.controller.entries(), kept);
    assert!(!world.knows(VariantIx::new(4 * MANY)));
    assert!(world.knows(VariantIx::new(5 * MANY - 1)));
}

#[test]
fn a_variant_that_comes_back_soon_is_remembered_and_one_that_comes_back_late_is_not() {
    let mut world = World::new();
    assert_eq!(world.answer(FIRST), 8 * MS, "the profile's");
    world.retire(FIRST);
    world.unloaded(FIRST);
    assert_eq!(world.answer(FIRST), 20 * MS, "what was learnt");
    world.retire(FIRST);
    world.unloaded(FIRST);
    world.pass(1..MANY);
    assert!(!world.knows(FIRST));
    assert_eq!(world.answer(FIRST), 8 * MS, "the profile's again");
}

#[test]
fn a_variant_that_still_leaves_a_device_is_not_forgotten() {
    let mut world = World::new();
    world.answer(FIRST);
    world.retire(FIRST);
    world.pass(1..MANY);
    let presence = world.controller.placement().presence(DEVICE, FIRST);
    assert_eq!(presence, Presence::Leaving);
    assert!(world.knows(FIRST));
    world.unloaded(FIRST);
    world.pass(MANY..MANY + 1);
    assert!(!world.knows(FIRST));
}
