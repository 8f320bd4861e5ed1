//! Properties of the device scheduler over random histories.

use proptest::prelude::*;
use sextant_policies::schedule::{
    Action, BatchId, DropReason, NEVER, Nanos, QueueSpec, Request, Scheduler,
};

const SLOTS: u16 = 3;

fn spec(max_rows: u32, slots: u16, batched: bool) -> QueueSpec {
    let latency = (1..=u64::from(max_rows))
        .map(|rows| 100 + 10 * rows)
        .collect();
    QueueSpec {
        max_rows,
        batched,
        slots,
        latency,
        max_waiting_rows: 64,
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arrive {
        variant: u32,
        rows: u32,
        slack: Option<Nanos>,
    },
    Finish {
        which: usize,
    },
    Tick {
        nanos: Nanos,
    },
    Unload {
        variant: u32,
    },
    Load {
        variant: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u32, 1..5u32, proptest::option::of(0..2_000u64))
            .prop_map(|(variant, rows, slack)| Step::Arrive { variant, rows, slack }),
        5 => (0..8usize).prop_map(|which| Step::Finish { which }),
        3 => (0..300u64).prop_map(|nanos| Step::Tick { nanos }),
        1 => (0..4u32).prop_map(|variant| Step::Unload { variant }),
        1 => (0..4u32).prop_map(|variant| Step::Load { variant }),
    ]
}

/// Drives a scheduler and checks every action against the contract.
struct World {
    scheduler: Scheduler<u64>,
    specs: Vec<QueueSpec>,
    now: Nanos,
    sent: u64,
    answered: Vec<u64>,
    running: Vec<(BatchId, u16)>,
}

impl World {
    fn new() -> Self {
        let specs = vec![
            spec(1, 1, true),
            spec(8, 1, true),
            spec(4, 2, true),
            spec(4, 9, false),
        ];
        let mut scheduler = Scheduler::new(SLOTS);
        for (ordinal, spec) in specs.iter().enumerate() {
            scheduler.on_loaded(ordinal as u32, spec.clone());
        }
        Self {
            scheduler,
            specs,
            now: 0,
            sent: 0,
            answered: vec![],
            running: vec![],
        }
    }

    fn apply(&mut self, step: &Step) {
        let actions = match *step {
            Step::Arrive {
                variant,
                rows,
                slack,
            } => self.arrive(variant, rows, slack),
            Step::Finish { which } if which < self.running.len() => {
                let (batch, _) = self.running.remove(which);
                self.scheduler.on_result(self.now, batch)
            }
            Step::Finish { .. } => vec![],
            Step::Tick { nanos } => {
                self.now += nanos;
                self.scheduler.on_timer(self.now)
            }
            Step::Unload { variant } => self.scheduler.on_unloaded(variant),
            Step::Load { variant } => {
                self.scheduler
                    .on_loaded(variant, self.specs[variant as usize].clone());
                vec![]
            }
        };
        self.check(actions);
    }

    fn arrive(&mut self, variant: u32, rows: u32, slack: Option<Nanos>) -> Vec<Action<u64>> {
        let rows = rows.min(self.specs[variant as usize].max_rows);
        let deadline = slack.map_or(NEVER, |slack| self.now + slack);
        let request = Request {
            payload: self.sent,
            rows,
            deadline,
        };
        self.sent += 1;
        self.scheduler.on_request(self.now, variant, request)
    }

    fn check(&mut self, actions: Vec<Action<u64>>) {
        for action in actions {
            match action {
                Action::Drop { request, .. } => self.answered.push(request.payload),
                Action::Infer {
                    ordinal,
                    requests,
                    latest,
                    id,
                } => {
                    let spec = &self.specs[ordinal as usize];
                    let rows: u32 = requests.iter().map(|request| request.rows).sum();
                    assert!(rows <= spec.max_rows, "a batch over its maximum");
                    assert!(
                        spec.batched || requests.len() == 1,
                        "requests share no batch here"
                    );
                    let end = self.now + spec.latency_of(rows);
                    assert!(
                        requests.iter().all(|r| end <= r.deadline),
                        "a batch that is late"
                    );
                    assert!(
                        latest == NEVER || latest >= self.now,
                        "a window that is closed"
                    );
                    assert!(requests.is_sorted_by_key(|r| r.deadline), "not by deadline");
                    self.answered
                        .extend(requests.iter().map(|request| request.payload));
                    self.running.push((id, spec.slots.clamp(1, SLOTS)));
                }
            }
        }
        let used: u16 = self.running.iter().map(|(_, slots)| slots).sum();
        assert!(used <= SLOTS, "more slots in use than there are");
    }

    /// Lets everything finish and tells what is left.
    fn finish(mut self) -> (u64, Vec<u64>) {
        while let Some((batch, _)) = self.running.pop() {
            self.now += 1;
            let actions = self.scheduler.on_result(self.now, batch);
            self.check(actions);
        }
        assert_eq!(
            self.scheduler.waiting(),
            0,
            "an idle device with requests waiting"
        );
        self.answered.sort_unstable();
        (self.sent, self.answered)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_request_leaves_exactly_once(steps in proptest::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.apply(step));
        let (sent, answered) = world.finish();
        prop_assert_eq!(answered, (0..sent).collect::<Vec<_>>());
    }
}

fn request(payload: u64, deadline: Nanos) -> Request<u64> {
    Request {
        payload,
        rows: 1,
        deadline,
    }
}

fn batch(actions: &[Action<u64>]) -> (Vec<u64>, BatchId) {
    match actions {
        [Action::Infer { requests, id, .. }] => (
            requests.iter().map(|request| request.payload).collect(),
            *id,
        ),
        other => panic!("expected one batch, got {other:?}"),
    }
}

#[test]
fn a_lone_query_on_an_idle_device_starts_at_once() {
    let mut scheduler = Scheduler::new(1);
    scheduler.on_loaded(0, spec(32, 1, true));
    let actions = scheduler.on_request(5, 0, request(1, NEVER));
    assert_eq!(batch(&actions).0, [1]);
}

#[test]
fn batches_grow_while_the_device_is_busy() {
    let mut scheduler = Scheduler::new(1);
    scheduler.on_loaded(0, spec(4, 1, true));
    let (_, first) = batch(&scheduler.on_request(0, 0, request(0, NEVER)));
    for payload in 1..=6 {
        assert!(
            scheduler
                .on_request(payload, 0, request(payload, NEVER))
                .is_empty()
        );
    }
    let (second, id) = batch(&scheduler.on_result(110, first));
    assert_eq!(second, [1, 2, 3, 4]);
    assert_eq!(batch(&scheduler.on_result(250, id)).0, [5, 6]);
}

#[test]
fn a_batch_stops_growing_where_its_earliest_deadline_would_be_missed() {
    let mut scheduler = Scheduler::new(1);
    scheduler.on_loaded(0, spec(8, 1, true));
    let (_, first) = batch(&scheduler.on_request(0, 0, request(0, NEVER)));
    // Two rows take 120 ns, three 130: the first deadline leaves room for two.
    for payload in 1..=4 {
        scheduler.on_request(0, 0, request(payload, if payload == 1 { 325 } else { 900 }));
    }
    assert_eq!(batch(&scheduler.on_result(200, first)).0, [1, 2]);
}

#[test]
fn what_cannot_be_met_is_refused_at_once_or_when_it_becomes_impossible() {
    let mut scheduler = Scheduler::new(1);
    scheduler.on_loaded(0, spec(8, 1, true));
    let refused = scheduler.on_request(0, 0, request(0, 109));
    assert!(matches!(
        refused[..],
        [Action::Drop {
            reason: DropReason::Infeasible,
            ..
        }]
    ));
    scheduler.on_request(0, 0, request(1, NEVER));
    assert!(scheduler.on_request(0, 0, request(2, 150)).is_empty());
    assert_eq!(scheduler.next_timer(), Some(40));
    let expired = scheduler.on_timer(41);
    assert!(matches!(
        expired[..],
        [Action::Drop {
            reason: DropReason::Expired,
            ..
        }]
    ));
    assert_eq!(scheduler.next_timer(), None);
}

#[test]
fn a_variant_with_many_threads_is_not_overtaken_for_ever() {
    let mut scheduler = Scheduler::new(2);
    scheduler.on_loaded(0, spec(1, 1, true));
    scheduler.on_loaded(1, spec(1, 2, true));
    let (_, narrow) = batch(&scheduler.on_request(0, 0, request(0, NEVER)));
    assert!(
        scheduler.on_request(1, 1, request(1, NEVER)).is_empty(),
        "needs both slots"
    );
    assert!(
        scheduler.on_request(2, 0, request(2, NEVER)).is_empty(),
        "must not overtake"
    );
    assert_eq!(batch(&scheduler.on_result(3, narrow)).0, [1]);
}

#[test]
fn the_wait_estimate_counts_running_and_queued_work() {
    let mut scheduler = Scheduler::new(1);
    scheduler.on_loaded(0, spec(8, 1, true));
    assert_eq!(scheduler.wait(0), 0);
    scheduler.on_request(0, 0, request(0, NEVER));
    assert_eq!(scheduler.wait(10), 100, "one row takes 110 ns from 0");
    scheduler.on_request(10, 0, request(1, NEVER));
    assert_eq!(scheduler.wait(10), 100 + 110);
}
