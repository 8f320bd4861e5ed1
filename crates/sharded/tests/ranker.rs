//! The ranker by itself: who gets which slot when.

use proptest::prelude::*;
use sextant_policies::schedule::{Delay, NEVER, Nanos};
use sextant_sharded::{Candidate, Grant, Placed, Ranker, Reply, Ticket};

fn ranker(models: u32, slots: u32) -> Ranker {
    Ranker::new(models, slots, Delay::default(), 8)
}

fn candidate(ready_at: Nanos, key: u64) -> Candidate {
    Candidate { ready_at, key }
}

fn grants(ranker: &mut Ranker, now: Nanos) -> Vec<(u32, u32)> {
    let granted = granted(ranker, now);
    let pair = |grant: &Grant| (grant.model, grant.ticket.slot);
    granted.iter().map(pair).collect()
}

fn granted(ranker: &mut Ranker, now: Nanos) -> Vec<Grant> {
    let mut granted = Vec::new();
    ranker.grant(now, &mut granted);
    granted
}

#[test]
fn free_slots_go_by_rank_and_the_rest_waits() {
    let mut ranker = ranker(4, 2);
    for (model, key) in [(0, 30), (1, 10), (2, 40), (3, 20)] {
        ranker.on_candidate(0, model, candidate(0, key));
    }
    let first = granted(&mut ranker, 0);
    assert_eq!(first[0].model, 1);
    assert_eq!(first[1].model, 3);
    assert_eq!(grants(&mut ranker, 0), [], "both slots are taken");
    let reply = |ticket, reply| (1, ticket, reply);
    let ticket = first[0].ticket;
    ranker.on_reply(
        0,
        reply(ticket, Reply::Used { until: 9 }),
        Some(Candidate::NONE),
    );
    assert_eq!(ranker.placed(0), Placed::Busy);
    ranker.on_reply(5, reply(ticket, Reply::Done), None);
    assert_eq!(grants(&mut ranker, 5), [(0, 0)]);
}

#[test]
fn a_candidate_waits_for_its_time() {
    let mut ranker = ranker(2, 1);
    ranker.on_candidate(0, 0, candidate(100, 1));
    ranker.on_candidate(0, 1, candidate(200, 0));
    assert_eq!(grants(&mut ranker, 99), []);
    assert_eq!(ranker.next_timer(), Some(100));
    assert_eq!(grants(&mut ranker, 100), [(0, 0)]);
    assert_eq!(
        ranker.next_timer(),
        None,
        "without a slot there is nothing to wake for"
    );
}

#[test]
fn of_a_model_only_the_latest_candidate_counts() {
    let mut ranker = ranker(2, 1);
    ranker.on_candidate(0, 0, candidate(0, 1));
    ranker.on_candidate(0, 1, candidate(0, 2));
    ranker.on_candidate(0, 0, Candidate::NONE);
    assert_eq!(grants(&mut ranker, 0), [(1, 0)]);
}

#[test]
fn a_slot_given_back_is_free_at_once_and_a_refusal_is_not_repeated_without_cause() {
    let mut ranker = ranker(2, 1);
    ranker.on_candidate(0, 0, candidate(0, 1));
    let grant = granted(&mut ranker, 0)[0];
    assert_eq!(ranker.placed(0), Placed::Granted);
    let unused = (0, grant.ticket, Reply::Unused { again: NEVER });
    ranker.on_reply(0, unused, Some(candidate(0, 1)));
    assert_eq!(ranker.placed(0), Placed::Idle);
    assert_eq!(grants(&mut ranker, 0), [], "it was refused as it stands");
    ranker.on_candidate(0, 0, candidate(0, 1));
    assert_eq!(grants(&mut ranker, 0), [], "still the same");
    ranker.on_candidate(0, 0, candidate(0, 3));
    assert_eq!(grants(&mut ranker, 0), [(0, 0)], "another candidate");
}

#[test]
fn a_refused_slot_is_offered_again_when_the_shard_said() {
    let mut ranker = ranker(1, 1);
    ranker.on_candidate(0, 0, candidate(0, 1));
    let grant = granted(&mut ranker, 0)[0];
    let unused = (0, grant.ticket, Reply::Unused { again: 50 });
    ranker.on_reply(0, unused, Some(candidate(0, 1)));
    assert_eq!(ranker.next_timer(), Some(50));
    assert_eq!(grants(&mut ranker, 50), [(0, 0)]);
}

#[test]
fn slots_are_granted_ahead_by_what_a_message_needs() {
    let delay = Delay {
        control: 10,
        data_per_row: 1,
        response: 0,
    };
    let mut ranker = Ranker::new(2, 1, delay, 10);
    ranker.on_candidate(0, 0, candidate(0, 1));
    let first = granted(&mut ranker, 0)[0];
    let used = (0, first.ticket, Reply::Used { until: 100 });
    ranker.on_reply(0, used, Some(candidate(0, 2)));
    assert_eq!(grants(&mut ranker, 79), []);
    assert_eq!(ranker.next_timer(), Some(80));
    let second = granted(&mut ranker, 80)[0];
    assert_eq!((second.model, second.free_at), (0, 100));
    let used = (0, second.ticket, Reply::Used { until: 200 });
    ranker.on_reply(80, used, Some(candidate(0, 3)));
    assert_eq!(
        grants(&mut ranker, 190),
        [],
        "one batch behind another is enough"
    );
    ranker.on_reply(191, (0, first.ticket, Reply::Done), None);
    assert_eq!(grants(&mut ranker, 191), [(0, 0)]);
}

#[test]
fn what_a_lost_device_still_says_is_ignored() {
    let mut ranker = ranker(2, 1);
    ranker.on_candidate(0, 0, candidate(0, 1));
    let lost = granted(&mut ranker, 0)[0];
    ranker.on_down(0);
    assert_eq!(ranker.placed(0), Placed::Down);
    ranker.on_candidate(0, 1, candidate(0, 1));
    assert_eq!(grants(&mut ranker, 0), [], "there is no device");
    ranker.on_up(1, 0);
    assert_eq!(grants(&mut ranker, 1), [(1, 0)]);
    let used = (0, lost.ticket, Reply::Used { until: 9 });
    ranker.on_reply(2, used, Some(candidate(0, 2)));
    ranker.on_reply(2, (0, lost.ticket, Reply::Done), None);
    assert_eq!(ranker.placed(0), Placed::Granted, "to the other model");
    assert_eq!(grants(&mut ranker, 2), []);
}

#[derive(Debug, Clone)]
enum Step {
    Candidate(u32, Nanos, u64),
    Answer(usize, Option<Nanos>),
    Done(usize),
    Wait(Nanos),
    Flap(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u32, 0..50u64, 0..9u64).prop_map(|(m, at, key)| Step::Candidate(m, at, key)),
        4 => (0..6usize, proptest::option::of(1..60u64)).prop_map(|(w, t)| Step::Answer(w, t)),
        3 => (0..6usize).prop_map(Step::Done),
        2 => (1..40u64).prop_map(Step::Wait),
        1 => (0..3u32).prop_map(Step::Flap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_slot_and_no_model_has_two_grants_at_once(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut ranker = ranker(6, 3);
        let (mut open, mut running): (Vec<Grant>, Vec<(u32, Ticket)>) = (vec![], vec![]);
        let (mut now, mut last) = (0, 0);
        for step in steps {
            match step {
                Step::Candidate(model, wait, key) => {
                    ranker.on_candidate(now, model, candidate(now + wait, key));
                }
                Step::Answer(which, run) if which < open.len() => {
                    let Grant { model, ticket, .. } = open.remove(which);
                    let reply = match run {
                        Some(run) => Reply::Used { until: now + run },
                        None => Reply::Unused { again: NEVER },
                    };
                    if run.is_some() {
                        running.push((model, ticket));
                    }
                    ranker.on_reply(now, (model, ticket, reply), Some(Candidate::NONE));
                }
                Step::Done(which) if which < running.len() => {
                    let (model, ticket) = running.remove(which);
                    ranker.on_reply(now, (model, ticket, Reply::Done), None);
                }
                Step::Wait(nanos) => now += nanos,
                // Grants of the lost device are answered later, to no effect.
                Step::Flap(slot) => {
                    ranker.on_up(now, slot);
                    running.retain(|(_, ticket)| ticket.slot != slot);
                    open.retain(|grant| {
                        let gone = grant.ticket.slot == slot;
                        if gone {
                            let reply = (grant.model, grant.ticket, Reply::Used { until: now });
                            ranker.on_reply(now, reply, Some(Candidate::NONE));
                        }
                        !gone
                    });
                }
                _ => {}
            }
            for grant in granted(&mut ranker, now) {
                prop_assert!(grant.ticket.number > last, "a number is used twice");
                last = grant.ticket.number;
                prop_assert!(open.iter().all(|other| other.model != grant.model));
                let taken = |ticket: &Ticket| ticket.slot == grant.ticket.slot;
                prop_assert!(!open.iter().any(|other| taken(&other.ticket)));
                prop_assert!(!running.iter().any(|(_, ticket)| taken(ticket)));
                open.push(grant);
            }
        }
    }
}
