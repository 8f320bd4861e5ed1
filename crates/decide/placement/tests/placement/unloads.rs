//! LOADs on a device that carries out UNLOADs before them.

use sextant_placement::{Action, DeviceSpec, Options, Placement, Policy, VariantSpec, build};
use sextant_schedule::{NEVER, Nanos};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

const MS: Nanos = 1_000_000;
const KIND: KindIx = KindIx::new(0);
const DEVICE: DeviceIx = DeviceIx::new(0);
const LEAVING: VariantIx = VariantIx::new(0);
const WANTED: VariantIx = VariantIx::new(1);

/// One device, which was told to unload a variant, and another variant, which is loaded nowhere.
struct World {
    placement: Box<dyn Placement>,
    actions: Vec<Action>,
}

impl World {
    fn new(policy: Policy, expected: Option<Nanos>) -> Self {
        let mut placement = build(&Options::of(policy));
        let mut actions = Vec::new();
        let out = &mut actions;
        let spec = VariantSpec {
            pages: 3,
            shared: None,
            load: 8 * MS,
            first_load: 0,
            run: 3 * MS,
        };
        for variant in [LEAVING, WANTED] {
            placement.on_variant(0, variant, spec, out);
            placement.on_kinds(0, variant, &[(KIND, 0)], out);
        }
        let spec = DeviceSpec {
            kind: KIND,
            pages: 9,
        };
        placement.on_device_up(0, DEVICE, spec, out);
        placement.on_load_result(0, DEVICE, LEAVING, true, out);
        if let Some(expected) = expected {
            placement.on_unload_estimate(0, KIND, expected);
        }
        placement.on_retired(0, LEAVING, out);
        let unload = Action::Unload {
            device: DEVICE,
            variant: LEAVING,
        };
        assert_eq!(*out, [unload], "{policy}");
        out.clear();
        Self { placement, actions }
    }

    /// A request for the variant that is loaded nowhere comes at time 0.
    fn request(&mut self, deadline: Nanos) {
        let out = &mut self.actions;
        self.placement.on_request(0, WANTED, deadline, out);
    }

    fn unloaded(&mut self, now: Nanos) {
        let out = &mut self.actions;
        self.placement.on_unloaded(now, DEVICE, LEAVING, out);
    }

    /// When the LOADs that were asked for may start.
    fn loads(&self) -> Vec<Nanos> {
        let starts = self.actions.iter().map(|action| match action {
            Action::Load {
                variant, earliest, ..
            } if *variant == WANTED => *earliest,
            other => panic!("{other:?}"),
        });
        starts.collect()
    }
}

#[test]
fn a_load_that_would_come_too_late_is_sent_when_the_unload_has_ended_early() {
    for policy in Policy::ALL {
        let mut world = World::new(*policy, Some(60 * MS));
        world.request(65 * MS);
        assert_eq!(world.loads(), [], "{policy}");
        world.unloaded(10 * MS);
        assert_eq!(world.loads(), [10 * MS], "{policy}");
    }
}

#[test]
fn an_unload_of_which_no_time_is_known_delays_no_load() {
    for policy in Policy::ALL {
        let mut world = World::new(*policy, None);
        world.request(65 * MS);
        assert_eq!(world.loads(), [0], "{policy}");
    }
}

#[test]
fn a_load_is_expected_to_begin_when_the_unload_before_it_has_ended() {
    for policy in Policy::ALL {
        let mut world = World::new(*policy, Some(60 * MS));
        world.request(NEVER);
        assert_eq!(world.loads(), [0], "{policy}");
        world.unloaded(50 * MS);
        // The LOAD under way ends at 58 ms.
        let last = |ready_by: Nanos| world.placement.last_chance(WANTED, ready_by);
        assert_eq!(last(58 * MS), 58 * MS, "{policy}");
        assert_eq!(last(57 * MS), 49 * MS, "{policy}");
    }
}
