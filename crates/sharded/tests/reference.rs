//! In lock step, shards and ranker decide what the single-threaded core decides.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sextant_policies::schedule::{
    Action, BatchId, Delay, Eager, LatencyTable, NEVER, Nanos, Options, Policy, QueueSpec, Request,
    Rule, Scheduler, Sextant, Symphony, WorkerSpec, build,
};
use sextant_sharded::{Message, Outcome, Parts, Place, ShardedSettings, Ticket, assemble};

const SLOTS: u32 = 3;
const QUEUES: u32 = 5;

/// What was decided, in order: queue, slot, requests and start of a batch, or a dropped request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Run {
        at: Nanos,
        queue: u32,
        slot: u32,
        requests: Vec<u64>,
        rows: u32,
        earliest: Nanos,
        latest: Nanos,
    },
    Drop {
        at: Nanos,
        request: u64,
        reason: String,
    },
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { queue: u32, rows: u32, slack: Nanos },
    Finish { slot: u32 },
    Wait { nanos: Nanos },
}

fn step() -> impl Strategy<Value = Step> {
    let slack = prop_oneof![8 => 0..3_000u64, 1 => Just(NEVER)];
    prop_oneof![
        6 => (0..QUEUES, 1..4u32, slack)
            .prop_map(|(queue, rows, slack)| Step::Arrive { queue, rows, slack }),
        4 => (0..SLOTS).prop_map(|slot| Step::Finish { slot }),
        3 => (1..400u64).prop_map(|nanos| Step::Wait { nanos }),
    ]
}

fn spec(queue: u32) -> QueueSpec {
    let line = (1..=8).map(|rows| 100 + 7 * u64::from(queue) + 20 * rows);
    QueueSpec {
        max_rows: 8,
        batched: queue != 4,
        slots: 1,
        latency: LatencyTable::new(line.collect()).expect("rises"),
        max_waiting_rows: 40,
        tenant: 0,
        priority: u8::from(queue == 3),
        weight: 1.0,
        price: 1.0,
    }
}

/// Neighbours share a shard, so that of equal ranks the same goes first as in the core: the one with
/// the lower number.
fn place(queue: u32, shards: u32) -> Place {
    let shard = queue * shards / QUEUES;
    Place {
        shard,
        model: queue - first_of(shard, shards),
    }
}

fn first_of(shard: u32, shards: u32) -> u32 {
    (shard * QUEUES).div_ceil(shards)
}

struct Core {
    scheduler: Box<dyn Scheduler<u64>>,
    running: Vec<(u32, BatchId)>,
    decisions: Vec<Decision>,
}

impl Core {
    fn new(options: &Options) -> Self {
        let mut scheduler = build::<u64>(options);
        let mut actions = Vec::new();
        for queue in 0..QUEUES {
            scheduler.on_loaded(0, 0, queue, spec(queue), &mut actions);
        }
        for worker in 0..SLOTS {
            scheduler.on_worker_up(0, worker, WorkerSpec { pool: 0, slots: 1 }, &mut actions);
        }
        Self {
            scheduler,
            running: Vec::new(),
            decisions: Vec::new(),
        }
    }

    fn note(&mut self, at: Nanos, actions: Vec<Action<u64>>) {
        for action in actions {
            self.decisions.push(match action {
                Action::Infer {
                    queue,
                    worker,
                    requests,
                    earliest,
                    latest,
                    id,
                    ..
                } => {
                    self.running.push((worker, id));
                    Decision::Run {
                        at,
                        queue,
                        slot: worker,
                        rows: requests.iter().map(|request| request.rows).sum(),
                        requests: requests.iter().map(|request| request.payload).collect(),
                        earliest,
                        latest,
                    }
                }
                Action::Drop { request, reason } => Decision::Drop {
                    at,
                    request: request.payload,
                    reason: format!("{reason:?}"),
                },
            });
        }
    }
}

struct Spread<R: Rule> {
    parts: Parts<u64, R>,
    shards: u32,
    running: Vec<(Place, Ticket)>,
    decisions: Vec<Decision>,
}

impl<R: Rule + Clone> Spread<R> {
    fn new(rule: &R, delay: Delay, shards: u32) -> Self {
        let mut models = vec![Vec::new(); shards as usize];
        for queue in 0..QUEUES {
            models[place(queue, shards).shard as usize].push(spec(queue));
        }
        let settings = ShardedSettings {
            delay,
            slots: SLOTS,
            models,
        };
        Self {
            parts: assemble(rule, &settings),
            shards,
            running: Vec::new(),
            decisions: Vec::new(),
        }
    }

    fn hand(&mut self, place: Place, message: Message<u64>) {
        let inbox = &self.parts.inboxes[place.shard as usize];
        inbox.send(message).expect("the shard is there");
    }

    /// Steps every part until none has anything to do.
    fn settle(&mut self, now: Nanos) {
        loop {
            let mut busy = false;
            for shard in 0..self.shards {
                let mut outcomes = Vec::new();
                let of = &mut self.parts.shards[shard as usize];
                busy |= of.step(now, &mut |outcome| outcomes.push(outcome));
                self.note(now, shard, outcomes);
            }
            busy |= self.parts.rank.step(now);
            if !busy {
                return;
            }
        }
    }

    fn note(&mut self, at: Nanos, shard: u32, outcomes: Vec<Outcome<u64>>) {
        for outcome in outcomes {
            self.decisions.push(match outcome {
                Outcome::Run(batch) => {
                    let place = Place {
                        shard,
                        model: batch.model,
                    };
                    self.running.push((place, batch.ticket));
                    Decision::Run {
                        at,
                        queue: first_of(shard, self.shards) + batch.model,
                        slot: batch.ticket.slot,
                        rows: batch.requests.iter().map(|request| request.rows).sum(),
                        requests: batch
                            .requests
                            .iter()
                            .map(|request| request.payload)
                            .collect(),
                        earliest: batch.earliest,
                        latest: batch.latest,
                    }
                }
                Outcome::Drop {
                    request, reason, ..
                } => Decision::Drop {
                    at,
                    request: request.payload,
                    reason: format!("{reason:?}"),
                },
            });
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let shards = self
            .parts
            .shards
            .iter()
            .filter_map(|shard| shard.next_timer());
        shards.chain(self.parts.rank.next_timer()).min()
    }
}

/// Runs one history through both; timers fire when they are due.
fn compare<R: Rule + Clone>(options: &Options, rule: &R, shards: u32, steps: &[Step]) {
    let mut core = Core::new(options);
    let mut spread = Spread::new(rule, options.delay, shards);
    let (mut now, mut sent) = (0, 0);
    for step in steps {
        let mut actions = Vec::new();
        // The core looks only with its timer which slots will be free soon, the ranker always.
        core.scheduler.on_timer(now, &mut actions);
        match *step {
            Step::Arrive { queue, rows, slack } => {
                let rows = if queue == 4 { 1 } else { rows };
                let deadline = match slack {
                    NEVER => NEVER,
                    slack => now + slack,
                };
                let request = Request {
                    payload: sent,
                    rows,
                    deadline,
                };
                sent += 1;
                core.scheduler
                    .on_request(now, queue, request.clone(), &mut actions);
                let place = place(queue, shards);
                spread.hand(
                    place,
                    Message::Request {
                        model: place.model,
                        request,
                    },
                );
            }
            // The first batch on a slot is the one that ends.
            Step::Finish { slot } => {
                let on_slot = core.running.iter().position(|(worker, _)| *worker == slot);
                if let Some(at) = on_slot {
                    let (_, id) = core.running.remove(at);
                    core.scheduler.on_result(now, id, &mut actions);
                    let at = spread
                        .running
                        .iter()
                        .position(|(_, ticket)| ticket.slot == slot);
                    let (place, ticket) = spread.running.remove(at.expect("busy in both"));
                    let model = place.model;
                    spread.hand(place, Message::Done { model, ticket });
                }
            }
            Step::Wait { nanos } => {
                let until = now + nanos;
                while let Some(at) = core
                    .scheduler
                    .next_timer()
                    .into_iter()
                    .chain(spread.next_timer())
                    .min()
                    && at <= until
                {
                    now = now.max(at);
                    core.scheduler.on_timer(now, &mut actions);
                    core.note(now, std::mem::take(&mut actions));
                    spread.settle(now);
                }
                now = until;
            }
        }
        while core.scheduler.next_timer().is_some_and(|at| at <= now) {
            core.scheduler.on_timer(now, &mut actions);
        }
        core.note(now, actions);
        spread.settle(now);
        assert_eq!(sorted(&core.decisions), sorted(&spread.decisions));
        core.decisions.clear();
        spread.decisions.clear();
    }
}

/// Runs one history on shards alone. With delays slots are granted ahead, several of them at one
/// instant, and then a model gets one at a time: the order differs from the core's, the contract
/// doesn't.
fn contract<R: Rule + Clone>(rule: &R, shards: u32, steps: &[Step]) {
    let mut spread = Spread::new(rule, FAR, shards);
    let mut deadlines = Vec::new();
    let mut answered = Vec::new();
    let mut ends: BTreeMap<u32, Vec<Nanos>> = BTreeMap::new();
    let mut now = 0;
    let mut check =
        |spread: &mut Spread<R>, deadlines: &[Nanos], ends: &mut BTreeMap<u32, Vec<Nanos>>| {
            for decision in spread.decisions.drain(..) {
                match decision {
                    Decision::Drop { request, .. } => answered.push(request),
                    Decision::Run {
                        queue,
                        slot,
                        requests,
                        rows,
                        earliest,
                        ..
                    } => {
                        let end = earliest + spec(queue).latency.of(rows);
                        let on_slot = ends.entry(slot).or_default();
                        assert!(on_slot.len() < 2, "more than one batch ahead");
                        assert!(
                            on_slot.iter().all(|before| *before <= earliest),
                            "two at once"
                        );
                        on_slot.push(end);
                        let late =
                            |id: &u64| end.saturating_add(FAR.response) > deadlines[*id as usize];
                        assert!(!requests.iter().any(late), "a batch that is late");
                        answered.extend(requests);
                    }
                }
            }
        };
    // In the end everything has time to run.
    let finish = (0..300).flat_map(|_| {
        let ends = (0..SLOTS).map(|slot| Step::Finish { slot });
        ends.chain([Step::Wait { nanos: 200 }])
    });
    for step in steps.iter().cloned().chain(finish) {
        match step {
            Step::Arrive { queue, rows, slack } => {
                let rows = if queue == 4 { 1 } else { rows };
                let deadline = now + slack.min(NEVER - now);
                let payload = deadlines.len() as u64;
                let request = Request {
                    payload,
                    rows,
                    deadline,
                };
                deadlines.push(deadline);
                let place = place(queue, shards);
                spread.hand(
                    place,
                    Message::Request {
                        model: place.model,
                        request,
                    },
                );
            }
            // A batch ends when it should, or later.
            Step::Finish { slot } => {
                let of = ends.entry(slot).or_default();
                if of.first().is_some_and(|end| *end <= now) {
                    of.remove(0);
                    let at = spread
                        .running
                        .iter()
                        .position(|(_, ticket)| ticket.slot == slot);
                    let (place, ticket) = spread.running.remove(at.expect("busy"));
                    spread.hand(
                        place,
                        Message::Done {
                            model: place.model,
                            ticket,
                        },
                    );
                }
            }
            Step::Wait { nanos } => {
                let until = now + nanos;
                while let Some(at) = spread.next_timer()
                    && at <= until
                {
                    now = now.max(at);
                    spread.settle(now);
                    check(&mut spread, &deadlines, &mut ends);
                }
                now = until;
            }
        }
        spread.settle(now);
        check(&mut spread, &deadlines, &mut ends);
    }
    answered.sort_unstable();
    assert!(
        answered.iter().copied().eq(0..deadlines.len() as u64),
        "each exactly once"
    );
}

/// Drops in the order of requests, batches in the order of their slots: within one instant the
/// order in which shards speak means nothing.
fn sorted(decisions: &[Decision]) -> BTreeMap<String, &Decision> {
    let key = |decision: &Decision| match decision {
        Decision::Run {
            at, slot, requests, ..
        } => format!("{at:020} run {slot} {requests:?}"),
        Decision::Drop { at, request, .. } => format!("{at:020} drop {request}"),
    };
    decisions
        .iter()
        .map(|decision| (key(decision), decision))
        .collect()
}

fn options(policy: Policy, delay: Delay) -> Options {
    Options {
        delay,
        ..Options::of(policy)
    }
}

const FAR: Delay = Delay {
    control: 30,
    data_per_row: 5,
    response: 40,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn eager_on_shards_is_eager(
        steps in proptest::collection::vec(step(), 1..120),
        shards in 1..4u32,
    ) {
        compare(&options(Policy::Eager, Delay::default()), &Eager::strong(), shards, &steps);
    }

    #[test]
    fn symphony_on_shards_is_symphony(
        steps in proptest::collection::vec(step(), 1..120),
        shards in 1..4u32,
    ) {
        let options = options(Policy::Symphony, Delay::default());
        compare(&options, &Symphony::new(&options), shards, &steps);
    }

    #[test]
    fn with_delays_nothing_is_lost_late_or_beside_another_batch(
        steps in proptest::collection::vec(step(), 1..200),
        shards in 1..4u32,
    ) {
        let options = options(Policy::Symphony, FAR);
        contract(&Symphony::new(&options), shards, &steps);
    }

    #[test]
    fn so_it_is_with_our_own_rule(
        steps in proptest::collection::vec(step(), 1..200),
        shards in 1..4u32,
    ) {
        contract(&Sextant::new(&options(Policy::Sextant, FAR)), shards, &steps);
    }
}
