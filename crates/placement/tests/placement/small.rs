//! Small histories of one placement, step by step.

use sextant_placement::{
    Action, DeviceSpec, ModelSpec, Options, Placement, Policy, Presence, UnknownPolicy, Wanted,
    build,
};
use sextant_schedule::{NEVER, Nanos};

const MS: Nanos = 1_000_000;

fn spec(pages: u32) -> ModelSpec {
    ModelSpec {
        pages,
        shared: None,
        load: 8 * MS,
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
    /// With one device of `pages` pages and models of the given pages.
    fn new(policy: Policy, pages: u32, models: &[u32]) -> Self {
        let mut driver = Self {
            placement: build(&Options::of(policy)),
            now: 0,
            actions: vec![],
        };
        for (model, pages) in (0..).zip(models) {
            driver.publish(model, spec(*pages));
        }
        driver.up(0, 0, pages);
        driver
    }

    /// A model that can run on devices of both kinds.
    fn publish(&mut self, model: u32, spec: ModelSpec) {
        self.event(|p, now, out| p.on_model(now, model, spec, out));
        self.event(|p, now, out| p.on_kinds(now, model, &[(0, 0), (1, 0)], out));
    }

    fn up(&mut self, device: u32, kind: u32, pages: u32) {
        let spec = DeviceSpec { kind, pages };
        self.event(|p, now, out| p.on_device_up(now, device, spec, out));
    }

    fn event(&mut self, event: impl FnOnce(&mut dyn Placement, Nanos, &mut Vec<Action>)) {
        event(self.placement.as_mut(), self.now, &mut self.actions);
    }

    fn request(&mut self, model: u32, slack: Nanos) {
        let deadline = match slack {
            NEVER => NEVER,
            _ => self.now + slack,
        };
        self.event(|p, now, out| p.on_request(now, model, deadline, out));
    }

    /// A request that is served by a batch of its own, on device 0.
    fn serve(&mut self, model: u32) {
        self.request(model, NEVER);
        self.event(|p, now, out| p.on_served(now, 0, model, &[NEVER], out));
        self.pass(3 * MS);
        self.event(|p, now, out| p.on_finished(now, 0, model, out));
    }

    /// Asks for a model until it is loaded and has served, all else being idle.
    fn bring(&mut self, model: u32) -> Vec<Action> {
        self.actions.clear();
        self.request(model, 100 * MS);
        let deadline = self.now + 100 * MS;
        let actions = self.take();
        self.carry_out(&actions);
        assert_eq!(self.placement.presence(0, model), Presence::Loaded);
        self.event(|p, now, out| p.on_served(now, 0, model, &[deadline], out));
        self.pass(3 * MS);
        self.event(|p, now, out| p.on_finished(now, 0, model, out));
        actions
    }

    fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Unload { device, model } => {
                    self.event(|p, now, out| p.on_unloaded(now, device, model, out));
                }
                Action::Load {
                    device,
                    model,
                    earliest,
                    expected,
                    ..
                } => {
                    self.now = self.now.max(earliest) + expected;
                    self.event(|p, now, out| p.on_load_result(now, device, model, true, out));
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
            Action::Load { model, .. } => Some(model),
            Action::Unload { .. } => None,
        });
        loads.collect()
    }
}

fn unloaded(actions: &[Action]) -> Vec<u32> {
    let unloads = actions.iter().filter_map(|action| match action {
        Action::Unload { model, .. } => Some(*model),
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
fn a_cold_request_loads_its_model_once() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.request(0, 100 * MS);
        driver.request(0, 100 * MS);
        let actions = driver.take();
        let latest = 100 * MS - 3 * MS - 8 * MS;
        let load = Action::Load {
            device: 0,
            model: 0,
            earliest: 0,
            latest,
            expected: 8 * MS,
        };
        assert_eq!(actions, [load], "{policy}");
        assert_eq!(driver.placement.free_pages(0), 6);
    }
}

#[test]
fn a_request_that_no_load_could_help_loads_nothing() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.request(0, 11 * MS - 1);
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.demand().of(0), 0, "{policy}");
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
        // Model 1 has to wait for the executor, too long.
        driver.request(1, 25 * MS);
        assert!(driver.placement.demand().of(1) > 0, "{policy}");
        driver.pass(15 * MS);
        assert_eq!(driver.placement.demand().of(1), 0, "{policy}");
        driver.event(|p, now, out| p.on_load_result(now, 0, 0, true, out));
        driver.event(|p, now, out| p.on_dropped(now, 0, NEVER, out));
        assert_eq!(driver.take(), [], "{policy} loads for nobody");
    }
}

#[test]
fn a_resident_model_under_light_load_is_not_loaded_again() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.up(1, 0, 10);
        driver.request(0, 100 * MS);
        let loads = driver.take();
        assert_eq!(loads.len(), 1, "{policy}");
        driver.carry_out(&loads);
        for _ in 0..100 {
            driver.request(0, 100 * MS);
            assert!(driver.placement.demand().priority(0) <= 0.0, "{policy}");
            driver.pass(10 * MS);
            let deadline = driver.now + 90 * MS;
            let on = u32::from(driver.placement.presence(1, 0) == Presence::Loaded);
            driver.event(|p, now, out| p.on_served(now, on, 0, &[deadline], out));
            driver.pass(3 * MS);
            driver.event(|p, now, out| p.on_finished(now, on, 0, out));
        }
        assert_eq!(driver.take(), [], "{policy}");
    }
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    for policy in [Policy::Clockwork, Policy::Lru] {
        let mut driver = Driver::new(policy, 9, &[3; 6]);
        for model in [0, 1, 2] {
            assert_eq!(unloaded(&driver.bring(model)), [], "{policy}");
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
    // Each used once, and after model 0.
    for model in 1..12 {
        let gone = unloaded(&driver.bring(model));
        assert!(!gone.contains(&0), "{gone:?} for {model}");
    }
}

#[test]
fn sextant_keeps_what_costs_more_to_load_for_its_pages() {
    let mut driver = Driver::new(Policy::Sextant, 8, &[4, 4, 4]);
    let slow = ModelSpec {
        load: 40 * MS,
        ..spec(4)
    };
    driver.event(|p, now, out| p.on_model(now, 0, slow, out));
    driver.bring(0);
    driver.bring(1);
    assert_eq!(unloaded(&driver.bring(2)), [1], "least recently used is 0");
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
fn running_and_pinned_models_and_the_only_replica_of_a_waiting_one_stay() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3; 4]);
        let pinned = Wanted {
            devices: 0,
            pinned: true,
            order: 0,
        };
        driver.event(|p, now, out| p.on_wanted(now, &[(0, pinned)], NEVER, out));
        for model in 0..3 {
            driver.bring(model);
        }
        // Model 1 runs, model 2 is waited for.
        driver.request(1, NEVER);
        driver.event(|p, now, out| p.on_served(now, 0, 1, &[NEVER], out));
        driver.request(2, NEVER);
        driver.actions.clear();
        driver.request(3, NEVER);
        assert_eq!(driver.take(), [], "{policy}: no room");
        driver.event(|p, now, out| p.on_finished(now, 0, 1, out));
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
        driver.event(|p, now, out| p.on_load_result(now, 0, 0, false, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.free_pages(0), 9);
        driver.pass(10 * MS);
        assert_eq!(driver.loads(), [0], "{policy}");
    }
}

#[test]
fn a_model_larger_than_the_device_is_never_loaded_nor_clears_it() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3, 10]);
        driver.bring(0);
        driver.request(1, NEVER);
        driver.pass(1_000 * MS);
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.presence(0, 0), Presence::Loaded);
    }
}

#[test]
fn a_load_goes_to_the_device_that_is_fast_enough() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.up(1, 1, 9);
        driver.event(|p, now, _| p.on_load_estimate(now, 1, 0, 2 * MS));
        let margin = Options::default().margin;
        assert_eq!(driver.placement.last_chance(0, 50 * MS), 48 * MS);
        driver.request(0, 2 * MS + 3 * MS + margin);
        let load = driver.take();
        assert!(
            matches!(load[..], [Action::Load { device: 1, expected, .. }] if expected == 2 * MS),
            "{policy}: {load:?}"
        );
        // Under way it helps as long as it ends in time.
        assert_eq!(driver.placement.last_chance(0, 50 * MS), 50 * MS);
        assert_eq!(driver.placement.last_chance(0, MS), 0);
    }
}

#[test]
fn a_model_that_is_found_is_there_whatever_the_books_say() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 5, &[3, 3]);
        driver.event(|p, now, out| p.on_load_result(now, 0, 0, true, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.presence(0, 0), Presence::Loaded);
        driver.event(|p, now, out| p.on_load_result(now, 0, 1, true, out));
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.presence(0, 1), Presence::Loaded);
        assert_eq!(driver.placement.free_pages(0), 0, "{policy}");
        // The next LOAD pays for what was overdrawn.
        driver.publish(2, spec(3));
        assert_eq!(unloaded(&driver.bring(2)).len(), 2, "{policy}");
    }
}

#[test]
fn events_of_unknown_models_and_devices_change_nothing() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.event(|p, now, out| {
            p.on_request(now, 7, 100 * MS, out);
            p.on_served(now, 3, 7, &[100 * MS], out);
            p.on_finished(now, 3, 7, out);
            p.on_dropped(now, 7, 100 * MS, out);
            p.on_load_result(now, 0, 7, true, out);
            p.on_load_result(now, 5, 0, true, out);
            p.on_unloaded(now, 5, 0, out);
            p.on_device_down(now, 5, out);
            p.on_load_estimate(now, 5, 7, MS);
        });
        assert_eq!(driver.take(), [], "{policy}");
        assert_eq!(driver.placement.next_timer(), None, "{policy}");
    }
}
