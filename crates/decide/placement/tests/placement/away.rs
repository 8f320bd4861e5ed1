//! How long a variant stays away from a device that something else slows down.

use sextant_placement::{
    Action, DesiredPlacement, DeviceSpec, Options, Placement, Policy, Presence, VariantSpec, build,
};
use sextant_schedule::{NEVER, Nanos};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
const SLOW: DeviceIx = DeviceIx::new(0);
const OTHER: DeviceIx = DeviceIx::new(1);
const VARIANT: VariantIx = VariantIx::new(0);

/// Two devices that have one variant. What they are told succeeds at once.
struct World {
    placement: Box<dyn Placement>,
    now: Nanos,
}

impl World {
    fn new() -> Self {
        let mut placement = build(&Options::of(Policy::Sextant));
        let out = &mut Vec::new();
        let spec = VariantSpec {
            pages: 3,
            shared: None,
            load: 8 * MS,
            first_load: 0,
            run: 3 * MS,
        };
        placement.on_variant(0, VARIANT, spec, out);
        placement.on_kinds(0, VARIANT, &[(KindIx::new(0), 0)], out);
        for device in [SLOW, OTHER] {
            let spec = DeviceSpec {
                kind: KindIx::new(0),
                pages: 9,
            };
            placement.on_device_up(0, device, spec, out);
            placement.on_load_result(0, device, VARIANT, true, out);
        }
        assert_eq!(*out, []);
        Self { placement, now: 0 }
    }

    /// The variant is desired on both devices.
    fn desire(&mut self) {
        let everywhere = DesiredPlacement {
            devices: u32::MAX,
            pinned: false,
            order: 0,
        };
        let mut out = Vec::new();
        self.placement
            .on_desired(self.now, &[(VARIANT, everywhere)], NEVER, &mut out);
        assert_eq!(out, []);
    }

    /// The variant leaves the slow device.
    fn withdraw(&mut self) {
        let mut out = Vec::new();
        let begun = self
            .placement
            .on_withdraw(self.now, VARIANT, SLOW, &[OTHER], &mut out);
        assert!(begun);
        let unload = Action::Unload {
            device: SLOW,
            variant: VARIANT,
        };
        assert_eq!(out, [unload]);
        out.clear();
        self.placement
            .on_unloaded(self.now, SLOW, VARIANT, &mut out);
        assert_eq!(out, []);
    }

    /// Sends more requests than one device has time for. Returns the number of LOADs that follow.
    fn ask_much(&mut self) -> usize {
        let mut out = Vec::new();
        for _ in 0..400 {
            self.placement
                .on_request(self.now, VARIANT, self.now + 200 * MS, &mut out);
        }
        out.len()
    }

    /// Lets the timers pass until the variant is loaded on the slow device. Returns how long that
    /// takes, s.
    fn come_back(&mut self) -> u64 {
        let left = self.now;
        let mut out = Vec::new();
        while out.is_empty() {
            let next = self.placement.next_timer();
            self.now = next.expect("it comes back by a timer");
            self.placement.on_timer(self.now, &mut out);
        }
        let to_slow =
            |action: &Action| matches!(action, Action::Load { device, .. } if *device == SLOW);
        assert!(out.iter().all(to_slow), "{out:?}");
        let away_s = (self.now - left) / SECOND;
        self.now += 8 * MS;
        self.placement
            .on_load_result(self.now, SLOW, VARIANT, true, &mut out);
        away_s
    }
}

#[test]
fn a_variant_that_leaves_a_device_again_and_again_stays_away_for_longer() {
    let mut world = World::new();
    world.desire();
    let mut away_s = Vec::new();
    for _ in 0..5 {
        world.withdraw();
        away_s.push(world.come_back());
        world.now += 30 * SECOND;
    }
    assert_eq!(away_s, [60, 120, 240, 480, 480]);
    // Nothing has slowed it down for long.
    world.now += 480 * SECOND;
    world.withdraw();
    assert_eq!(world.come_back(), 60);
}

#[test]
fn requests_that_need_it_bring_a_variant_back_after_a_minute() {
    let mut world = World::new();
    world.withdraw();
    world.now += SECOND;
    let mut out = Vec::new();
    world
        .placement
        .on_load_result(world.now, SLOW, VARIANT, true, &mut out);
    world.withdraw();
    world.now += 59 * SECOND;
    assert_eq!(world.ask_much(), 0);
    world.now += 2 * SECOND;
    assert_eq!(world.ask_much(), 1);
    assert_eq!(world.placement.presence(SLOW, VARIANT), Presence::Loading);
}

#[test]
fn a_variant_that_would_be_nowhere_comes_back_at_once() {
    let mut world = World::new();
    world.withdraw();
    let mut out = Vec::new();
    world.placement.on_device_down(world.now, OTHER, &mut out);
    assert!(world.placement.may_load(world.now, VARIANT));
    world
        .placement
        .on_request(world.now, VARIANT, NEVER, &mut out);
    assert_eq!(out.len(), 1, "{out:?}");
    assert_eq!(
        world.placement.presence(SLOW, VARIANT),
        Presence::Loading,
        "{out:?}"
    );
}
