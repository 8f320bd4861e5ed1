//! Small histories of one placement, step by step.

use sextant_placement::{
    Action, DesiredPlacement, DeviceSpec, Options, Placement, Policy, Presence, UnknownPolicy,
    VariantSpec, build,
};
use sextant_schedule::{NEVER, Nanos};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

mod desired;

const MS: Nanos = 1_000_000;
const DEVICES: [DeviceIx; 6] = DeviceIx::first();
const VARIANTS: [VariantIx; 8] = VariantIx::first();

fn spec(pages: u32) -> VariantSpec {
    VariantSpec {
        pages,
        shared: None,
        load: 8 * MS,
        first_load: 0,
        run: 3 * MS,
    }
}

/// A placement whose LOADs and UNLOADs succeed when they are told to.
struct Driver {
    placement: Box<dyn Placement>,
    now: Nanos,
    actions: Vec<Action>,
}

impl Driver {
    /// With one device of `pages` pages and variants of the given pages.
    fn new(policy: Policy, pages: u32, variants: &[u32]) -> Self {
        let mut driver = Self {
            placement: build(&Options::of(policy)),
            now: 0,
            actions: vec![],
        };
        for (variant, pages) in (0..).zip(variants) {
            driver.publish(variant, spec(*pages));
        }
        driver.up(0, 0, pages);
        driver
    }

    /// A variant that can run on devices of both kinds.
    fn publish(&mut self, variant: u32, spec: VariantSpec) {
        let variant = VariantIx::new(variant);
        self.event(|p, now, out| p.on_variant(now, variant, spec, out));
        let kinds = [0, 1].map(|kind| (KindIx::new(kind), 0));
        self.event(|p, now, out| p.on_kinds(now, variant, &kinds, out));
    }

    fn up(&mut self, device: u32, kind: u32, pages: u32) {
        let spec = DeviceSpec {
            kind: KindIx::new(kind),
            pages,
        };
        let device = DeviceIx::new(device);
        self.event(|p, now, out| p.on_device_up(now, device, spec, out));
    }

    fn event(&mut self, event: impl FnOnce(&mut dyn Placement, Nanos, &mut Vec<Action>)) {
        event(self.placement.as_mut(), self.now, &mut self.actions);
    }

    fn request(&mut self, variant: u32, slack: Nanos) {
        let deadline = match slack {
            NEVER => NEVER,
            _ => self.now + slack,
        };
        self.event(|p, now, out| p.on_request(now, VariantIx::new(variant), deadline, out));
    }

    /// A request that is served by a batch of its own, on device 0.
    fn serve(&mut self, variant: u32) {
        self.request(variant, NEVER);
        let variant = VariantIx::new(variant);
        self.event(|p, now, out| p.on_served(now, DeviceIx::new(0), variant, &[NEVER], out));
        self.pass(3 * MS);
        self.event(|p, now, out| p.on_finished(now, DeviceIx::new(0), variant, out));
    }

    /// Asks for a variant until it is loaded and has served, all else being idle.
    fn bring(&mut self, variant: u32) -> Vec<Action> {
        self.actions.clear();
        self.request(variant, 100 * MS);
        let variant = VariantIx::new(variant);
        let deadline = self.now + 100 * MS;
        let actions = self.take();
        self.carry_out(&actions);
        assert_eq!(
            self.placement.presence(DeviceIx::new(0), variant),
            Presence::Loaded
        );
        self.event(|p, now, out| p.on_served(now, DeviceIx::new(0), variant, &[deadline], out));
        self.pass(3 * MS);
        self.event(|p, now, out| p.on_finished(now, DeviceIx::new(0), variant, out));
        actions
    }

    fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Unload { device, variant } => {
                    self.event(|p, now, out| p.on_unloaded(now, device, variant, out));
                }
                Action::Load {
                    device,
                    variant,
                    earliest,
                    expected,
                    ..
                } => {
                    self.now = self.now.max(earliest) + expected;
                    self.event(|p, now, out| p.on_load_result(now, device, variant, true, out));
                }
            }
        }
    }

    fn pass(&mut self, nanos: Nanos) {
        let until = self.now + nanos;
        while let Some(next) = self.placement.next_timer()
            && next <= until
        {
            self.now = self.now.max(next);
            self.event(|p, now, out| p.on_timer(now, out));
            let again = self.placement.next_timer();
            assert!(again.is_none_or(|again| again > next), "a timer for ever");
        }
        self.now = until;
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    fn loads(&mut self) -> Vec<u32> {
        let loads = self.take().into_iter().filter_map(|action| match action {
            Action::Load { variant, .. } => Some(variant.get()),
            Action::Unload { .. } => None,
        });
        loads.collect()
    }
}

fn unloaded(actions: &[Action]) -> Vec<u32> {
    let unloads = actions.iter().filter_map(|action| match action {
        Action::Unload { variant, .. } => Some(variant.get()),
        Action::Load { .. } => None,
    });
    unloads.collect()
}

#[test]
fn names_are_read_and_unknown_ones_list_the_valid_ones() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse::<Policy>(), Ok(*policy));
    }
    let error = "fifo".parse::<Policy>().unwrap_err();
    assert_eq!(error, UnknownPolicy("fifo".to_owned()));
    assert_eq!(
        error.to_string(),
        "there is no placement policy `fifo`; known: `sextant`, `clockwork`, `lru`"
    );
}

#[test]
fn a_cold_request_loads_its_variant_once() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.request(0, 100 * MS);
        driver.request(0, 100 * MS);
        let actions = driver.take();
        let latest = 100 * MS - 3 * MS - 8 * MS;
        let load = Action::Load {
            device: DEVICES[0],
            variant: VARIANTS[0],
            earliest: 0,
            latest,
            expected: 8 * MS,
        };
        assert_eq!(actions, [load], "{policy}");
        assert_eq!(driver.placement.free_pages(DEVICES[0]), 6);
    }
}

#[test]
fn a_request_that_no_load_could_help_loads_nothing() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.request(0, 11 * MS - 1);
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.demand().of(VARIANTS[0]), 0, "{policy}");
        driver.request(0, 11 * MS + Options::default().margin);
        assert_eq!(driver.loads(), [0], "{policy}");
    }
}

#[test]
fn hope_ends_while_a_load_is_awaited() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 4, &[4, 4]);
        driver.request(0, NEVER);
        assert_eq!(driver.loads(), [0], "{policy}");
        // Variant 1 has to wait for the executor, too long.
        driver.request(1, 25 * MS);
        assert!(driver.placement.demand().of(VARIANTS[1]) > 0, "{policy}");
        driver.pass(15 * MS);
        assert_eq!(driver.placement.demand().of(VARIANTS[1]), 0, "{policy}");
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[0], VARIANTS[0], true, out));
        driver.event(|p, now, out| p.on_dropped(now, VARIANTS[0], NEVER, out));
        assert_eq!(driver.take(), [], "{policy} loads for nobody");
    }
}

#[test]
fn a_resident_variant_under_light_load_is_not_loaded_again() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.up(1, 0, 10);
        driver.request(0, 100 * MS);
        let loads = driver.take();
        assert_eq!(loads.len(), 1, "{policy}");
        driver.carry_out(&loads);
        for _ in 0..100 {
            driver.request(0, 100 * MS);
            assert!(
                driver.placement.demand().priority(VARIANTS[0]) <= 0.0,
                "{policy}"
            );
            driver.pass(10 * MS);
            let deadline = driver.now + 90 * MS;
            let is_on = |at| {
                driver
                    .placement
                    .presence(DeviceIx::new(at), VariantIx::new(0))
            };
            let on = DeviceIx::new(u32::from(is_on(1) == Presence::Loaded));
            driver.event(|p, now, out| p.on_served(now, on, VariantIx::new(0), &[deadline], out));
            driver.pass(3 * MS);
            driver.event(|p, now, out| p.on_finished(now, on, VariantIx::new(0), out));
        }
        assert_eq!(driver.take(), [], "{policy}");
    }
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    for policy in [Policy::Clockwork, Policy::Lru] {
        let mut driver = Driver::new(policy, 9, &[3; 6]);
        for variant in [0, 1, 2] {
            assert_eq!(unloaded(&driver.bring(variant)), [], "{policy}");
        }
        driver.serve(0);
        assert_eq!(unloaded(&driver.bring(3)), [1], "{policy}");
        driver.serve(2);
        assert_eq!(unloaded(&driver.bring(4)), [0], "{policy}");
        assert_eq!(unloaded(&driver.bring(5)), [3], "{policy}");
        assert_eq!(unloaded(&driver.bring(1)), [2], "{policy}");
    }
}

#[test]
fn sextant_keeps_what_is_used_often_through_a_scan() {
    let mut driver = Driver::new(Policy::Sextant, 9, &[3; 12]);
    driver.bring(0);
    for _ in 0..20 {
        driver.serve(0);
        driver.pass(1_000 * MS);
    }
    // Each used once, and after variant 0.
    for variant in 1..12 {
        let gone = unloaded(&driver.bring(variant));
        assert!(!gone.contains(&0), "{gone:?} for {variant}");
    }
}

#[test]
fn sextant_keeps_what_costs_more_to_load_for_its_pages() {
    let mut driver = Driver::new(Policy::Sextant, 8, &[4, 4, 4]);
    let slow = VariantSpec {
        load: 40 * MS,
        ..spec(4)
    };
    driver.event(|p, now, out| p.on_variant(now, VARIANTS[0], slow, out));
    driver.bring(0);
    driver.bring(1);
    assert_eq!(unloaded(&driver.bring(2)), [1], "least recently used is 0");
}

/// The time of the one LOAD among the actions.
fn expected_of(actions: &[Action]) -> Nanos {
    let mut loads = actions.iter().filter_map(|action| match action {
        Action::Load { expected, .. } => Some(*expected),
        Action::Unload { .. } => None,
    });
    loads.next().expect("a LOAD")
}

#[test]
fn a_device_that_has_had_a_variant_loads_it_again_in_less() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 4, &[4, 4]);
        let prepared = VariantSpec {
            first_load: 60 * MS,
            ..spec(4)
        };
        driver.event(|p, now, out| p.on_variant(now, VARIANTS[0], prepared, out));
        assert!(driver.placement.is_first_load(DEVICES[0], VARIANTS[0]));
        assert_eq!(expected_of(&driver.bring(0)), 60 * MS, "{policy}");
        assert!(!driver.placement.is_first_load(DEVICES[0], VARIANTS[0]));
        assert_eq!(expected_of(&driver.bring(1)), 8 * MS, "{policy}");
        assert_eq!(expected_of(&driver.bring(0)), 8 * MS, "{policy}: again");
        // What its first LOAD prepared went with the process.
        driver.event(|p, now, out| p.on_device_down(now, DEVICES[0], out));
        driver.up(0, 0, 4);
        assert_eq!(expected_of(&driver.bring(0)), 60 * MS, "{policy}: anew");
    }
}

/// A request that a first LOAD cannot help is no reason for one; where a device has had the variant it is.
#[test]
fn a_first_load_that_comes_too_late_is_not_begun() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 4, &[4, 4]);
        let prepared = VariantSpec {
            first_load: 60 * MS,
            ..spec(4)
        };
        driver.event(|p, now, out| p.on_variant(now, VARIANTS[0], prepared, out));
        driver.request(0, 40 * MS);
        assert_eq!(driver.loads(), [], "{policy}");
        driver.event(|p, now, out| p.on_dropped(now, VARIANTS[0], 40 * MS, out));
        driver.bring(0);
        driver.bring(1);
        driver.take();
        driver.request(0, 40 * MS);
        assert_eq!(driver.loads(), [0], "{policy}: it was there before");
    }
}

#[test]
fn sextant_loads_first_where_a_load_saves_most_requests() {
    let mut driver = Driver::new(Policy::Sextant, 9, &[3, 3, 3]);
    driver.request(0, 100 * MS);
    let first = driver.take();
    driver.request(1, 90 * MS);
    driver.request(2, 100 * MS);
    driver.request(2, 100 * MS);
    assert_eq!(driver.take(), [], "one LOAD at a time");
    driver.carry_out(&first);
    assert_eq!(driver.loads(), [2]);
}

#[test]
fn running_and_pinned_variants_and_the_only_replica_of_a_waiting_one_stay() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3; 4]);
        let pinned = DesiredPlacement {
            devices: 0,
            pinned: true,
            order: 0,
        };
        driver.event(|p, now, out| p.on_desired(now, &[(VARIANTS[0], pinned)], NEVER, out));
        for variant in 0..3 {
            driver.bring(variant);
        }
        // Variant 1 runs, variant 2 is waited for.
        driver.request(1, NEVER);
        driver.event(|p, now, out| p.on_served(now, DEVICES[0], VARIANTS[1], &[NEVER], out));
        driver.request(2, NEVER);
        driver.actions.clear();
        driver.request(3, NEVER);
        assert_eq!(driver.take(), [], "{policy}: no room");
        driver.event(|p, now, out| p.on_finished(now, DEVICES[0], VARIANTS[1], out));
        let actions = driver.take();
        assert_eq!(
            unloaded(&actions),
            [1],
            "{policy}: as soon as it does not run"
        );
        assert_eq!(actions.len(), 2);
    }
}

#[test]
fn a_failed_load_is_tried_again_but_not_at_once() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.request(0, NEVER);
        assert_eq!(driver.loads(), [0]);
        driver.pass(8 * MS);
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[0], VARIANTS[0], false, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.free_pages(DEVICES[0]), 9);
        driver.pass(10 * MS);
        assert_eq!(driver.loads(), [0], "{policy}");
    }
}

#[test]
fn a_load_whose_window_has_closed_is_no_fault_of_its_variant() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        for turn in 0..20 {
            driver.request(0, 50 * MS);
            driver.pass(5 * MS);
            assert_eq!(driver.loads(), [0], "{policy}, {turn}");
            driver.event(|p, now, out| p.on_load_late(now, DEVICES[0], VARIANTS[0], out));
            assert!(driver.placement.may_load(driver.now, VARIANTS[0]));
        }
    }
}

#[test]
fn a_variant_that_was_nowhere_yet_takes_the_room_of_those_that_come_back_soon() {
    let mut driver = Driver::new(Policy::Sextant, 6, &[3, 3]);
    let slow_at_first = VariantSpec {
        first_load: 500 * MS,
        ..spec(3)
    };
    driver.publish(2, slow_at_first);
    driver.bring(0);
    driver.bring(1);
    for _ in 0..5 {
        driver.pass(2_000 * MS);
        driver.serve(0);
        driver.serve(1);
    }
    driver.take();
    driver.request(2, 100 * MS);
    assert_eq!(driver.take(), [], "a first LOAD helps no such request");
    driver.event(|p, now, out| p.on_missed(now, VARIANTS[2], out));
    let actions = driver.take();
    let gone = unloaded(&actions);
    assert_eq!((gone.len(), actions.len()), (1, 2), "{actions:?}");
    driver.carry_out(&actions);
    let presence = driver.placement.presence(DEVICES[0], VARIANTS[2]);
    assert_eq!(presence, Presence::Loaded);
    // From now on it is worth no more than others, and both come when they are asked for.
    driver.event(|p, now, out| p.on_dropped(now, VARIANTS[2], now, out));
    driver.bring(gone[0]);
}

#[test]
fn a_variant_larger_than_the_device_is_never_loaded_nor_clears_it() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3, 10]);
        driver.bring(0);
        driver.request(1, NEVER);
        driver.pass(1_000 * MS);
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(
            driver.placement.presence(DEVICES[0], VARIANTS[0]),
            Presence::Loaded
        );
    }
}

#[test]
fn a_load_goes_to_the_device_that_is_fast_enough() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.up(1, 1, 9);
        driver.event(|p, now, _| p.on_load_estimate(now, KindIx::new(1), VARIANTS[0], 2 * MS));
        let margin = Options::default().margin;
        assert_eq!(driver.placement.last_chance(VARIANTS[0], 50 * MS), 48 * MS);
        driver.request(0, 2 * MS + 3 * MS + margin);
        let load = driver.take();
        assert!(
            matches!(load[..], [Action::Load { device, expected, .. }] if (device, expected) == (DEVICES[1], 2 * MS)),
            "{policy}: {load:?}"
        );
        // Under way it helps as long as it ends in time.
        assert_eq!(driver.placement.last_chance(VARIANTS[0], 50 * MS), 50 * MS);
        assert_eq!(driver.placement.last_chance(VARIANTS[0], MS), 0);
    }
}

#[test]
fn a_variant_that_is_found_is_there_whatever_the_books_say() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 5, &[3, 3]);
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[0], VARIANTS[0], true, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(
            driver.placement.presence(DEVICES[0], VARIANTS[0]),
            Presence::Loaded
        );
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[0], VARIANTS[1], true, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(
            driver.placement.presence(DEVICES[0], VARIANTS[1]),
            Presence::Loaded
        );
        assert_eq!(driver.placement.free_pages(DEVICES[0]), 0, "{policy}");
        // The next LOAD pays for what was overdrawn.
        driver.publish(2, spec(3));
        assert_eq!(unloaded(&driver.bring(2)).len(), 2, "{policy}");
    }
}

#[test]
fn a_variant_that_runs_begins_to_leave_at_once_and_goes_when_its_batch_ends() {
    let mut driver = Driver::new(Policy::Sextant, 9, &[3]);
    driver.up(1, 0, 9);
    let [here, there] = [DEVICES[0], DEVICES[1]];
    for device in [here, there] {
        driver.event(|p, now, out| p.on_load_result(now, device, VARIANTS[0], true, out));
    }
    driver.request(0, NEVER);
    driver.event(|p, now, out| p.on_served(now, here, VARIANTS[0], &[NEVER], out));
    let mut begun = Vec::new();
    for _ in 0..2 {
        driver
            .event(|p, now, out| begun.push(p.on_withdraw(now, VARIANTS[0], here, &[there], out)));
    }
    assert_eq!(begun, [true, false], "it leaves once");
    assert_eq!(driver.take(), []);
    driver.event(|p, now, out| p.on_finished(now, here, VARIANTS[0], out));
    assert_eq!(unloaded(&driver.take()), [0]);
}

#[test]
fn events_of_unknown_variants_and_devices_change_nothing() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.event(|p, now, out| {
            p.on_request(now, VARIANTS[7], 100 * MS, out);
            p.on_served(now, DEVICES[3], VARIANTS[7], &[100 * MS], out);
            p.on_finished(now, DEVICES[3], VARIANTS[7], out);
            p.on_dropped(now, VARIANTS[7], 100 * MS, out);
            p.on_load_result(now, DEVICES[0], VARIANTS[7], true, out);
            p.on_load_result(now, DEVICES[5], VARIANTS[0], true, out);
            p.on_unloaded(now, DEVICES[5], VARIANTS[0], out);
            p.on_device_down(now, DEVICES[5], out);
            p.on_load_estimate(now, KindIx::new(5), VARIANTS[7], MS);
        });
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.next_timer(), None, "{policy}");
    }
}
