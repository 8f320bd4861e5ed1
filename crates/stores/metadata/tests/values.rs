//! Methods of the store's values.

use sextant_metadata::{
    Action, AgreementRow, ApplicationDemand, Costs, Count, Cutback, Decision, Demand, DesiredState,
    DesiredVariant, DeviceDemand, Error, InstanceKey, Limit, MOST_DECISIONS, PlannedBatch, Pool,
    Subject, TrialRow, Worker, WorkerRecord,
};
use sextant_types::{
    ApplicationId, Code, DeviceTypeName, ModelId, TargetClass, VariantId, WorkerId,
};

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

fn variant(name: &str) -> VariantId {
    VariantId::new(name).expect("a name")
}

fn pool() -> Pool {
    Pool {
        device_type: DeviceTypeName::new("cpu-8").expect("a name"),
        desired: 1,
        least: 0,
        most: 9,
        provider: None,
        facts: None,
        trouble: None,
    }
}

fn decision(number: u64) -> Decision {
    Decision {
        number,
        at_ms: 1,
        subject: Subject::Variant(variant("a")),
        action: Action::Replicate,
        from: 1,
        to: 2,
        reason: "more is asked".into(),
        inputs: Vec::new(),
        alternatives: Vec::new(),
    }
}

fn batch(device_type: &str, max_rows: u32) -> PlannedBatch {
    PlannedBatch {
        variant: variant("a"),
        device_type: DeviceTypeName::new(device_type).expect("a name"),
        max_rows,
    }
}

#[test]
fn of_several_plans_the_largest_batch_counts_on_its_own_devices() {
    let batches = vec![batch("gpu", 9), batch("cpu-8", 2), batch("cpu-8", 4)];
    let desired = DesiredState::new(1, Vec::new(), 1).with_batches(batches);
    let rows = |name: &str, on: &str| {
        let on = DeviceTypeName::new(on).expect("a name");
        desired.planned_rows(&variant(name), &on)
    };
    assert_eq!(rows("a", "cpu-8"), Some(4));
    assert_eq!(rows("a", "gpu"), Some(9));
    assert_eq!(rows("a", "cpu-4"), None);
    assert_eq!(rows("b", "gpu"), None);
}

#[test]
fn each_error_has_its_code() {
    let reason = || "away".to_owned();
    for (error, code) in [
        (Error::TooManyRows { rows: 9 }, Code::TooLarge),
        (Error::Amount { amount: -1.0 }, Code::InvalidRequest),
        (Error::UnknownWorker(worker("w")), Code::Unavailable),
        (Error::Unavailable { reason: reason() }, Code::Unavailable),
    ] {
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn an_instance_is_named_by_its_variant_and_its_worker() {
    let key = InstanceKey::new(variant("a"), worker("w1"));
    assert_eq!(key.to_string(), "a@w1");
}

#[test]
fn a_worker_stays_unless_it_drains_or_is_to_leave() {
    let stays = |draining, leaving| {
        let record = WorkerRecord {
            draining,
            ..WorkerRecord::default()
        };
        let worker = Worker {
            id: worker("w"),
            record,
            lease_until_ms: 1,
            leaving,
        };
        worker.stays()
    };
    assert!(stays(false, false));
    for (draining, leaving) in [(true, false), (false, true), (true, true)] {
        assert!(!stays(draining, leaving), "{draining} {leaving}");
    }
}

#[test]
fn the_last_decisions_are_kept() {
    let many = MOST_DECISIONS as u64 + 3;
    let decisions = (0..many).map(decision).collect();
    let desired = DesiredState::new(1, Vec::new(), 1).with_scaling(vec![pool()], decisions);
    assert_eq!(desired.pools, [pool()]);
    assert_eq!(desired.decisions.len(), MOST_DECISIONS);
    assert_eq!(desired.decisions[0].number, 3);
    assert_eq!(desired.decisions[MOST_DECISIONS - 1].number, many - 1);
}

#[test]
fn whatever_differs_is_another_wish_but_for_who_wrote_it() {
    let of = DesiredVariant {
        variant: variant("a"),
        workers: Count::Everywhere,
        pinned: true,
        needed: 1,
    };
    let held_back = Cutback {
        application: ApplicationId::new("app").expect("a name"),
        limit: Limit::Budget,
        reason: "it is spent".into(),
    };
    let one = DesiredState::new(1, Vec::new(), 1);
    assert!(one.says_the_same(&DesiredState::new(2, Vec::new(), 1)));
    let others = [
        DesiredState::new(1, Vec::new(), 2),
        DesiredState::new(1, vec![of], 1),
        one.clone().with_emptying(vec![worker("w")]),
        one.clone().with_scaling(vec![pool()], Vec::new()),
        one.clone().with_scaling(Vec::new(), vec![decision(1)]),
        DesiredState {
            held_back: vec![held_back],
            ..one.clone()
        },
        one.clone().with_batches(vec![batch("cpu-8", 2)]),
    ];
    for other in others {
        assert!(!one.says_the_same(&other), "{other:?}");
        assert!(!other.says_the_same(&one), "{other:?}");
        assert!(other.says_the_same(&other.clone()));
    }
}

#[test]
fn whatever_differs_is_another_demand_but_for_who_wrote_it() {
    let one = Demand {
        token: 1,
        window_ms: 1000,
        applications: Vec::new(),
        devices: Vec::new(),
        costs: Costs::default(),
        agreement: Vec::new(),
        trials: Vec::new(),
    };
    assert!(one.says_the_same(&Demand {
        token: 2,
        ..one.clone()
    }));
    let asked = ApplicationDemand {
        application: ApplicationId::new("app").expect("a name"),
        class: TargetClass::default(),
        variant: None,
        offered: 1,
        input_rows: 1,
        sized_rows: 1.0,
        latency_ms: None,
        answered: 0,
        late: 0,
        kept: 0,
        refused: Default::default(),
        queueing_ms: 0,
        step: None,
    };
    let busy = DeviceDemand {
        device: "cpu".into(),
        idle_share: 0.5,
        slots: 2,
    };
    let agreed = AgreementRow {
        variant: variant("a"),
        rows: 2,
        agreeing: 1,
    };
    let tried = TrialRow::of(ModelId::new("m").expect("a name"));
    let mut others = vec![one.clone(); 6];
    others[0].window_ms = 2000;
    others[1].applications = vec![asked];
    others[2].devices = vec![busy];
    others[3].costs.since_ms = 1;
    others[4].agreement = vec![agreed];
    others[5].trials = vec![tried];
    for other in others {
        assert!(!one.says_the_same(&other), "{other:?}");
        assert!(!other.says_the_same(&one), "{other:?}");
        assert!(other.says_the_same(&other.clone()));
    }
}
