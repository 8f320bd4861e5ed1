//! Properties of the records that leaders write as a whole: the desired state and the demand.

use std::{collections::BTreeMap, sync::Arc};

use sextant_types::{
    Code, DeviceType, DeviceTypeName, EngineName, ModelId, Route, StepOf, TargetClass, Targets,
    VariantId, WholeAccuracy,
};

use super::{
    Store,
    fixtures::{application, key},
    follow, head,
};
use crate::{
    Action, AgreementRow, Alternative, ApplicationDemand, CostRow, Costs, Count, Decision, Demand,
    DesiredState, DesiredVariant, DeviceDemand, Error, Event, Input, MOST_DEMAND_ROWS,
    PlannedBatch, Pool, Snapshot, StepDemand, Subject, TrialRow, View,
};

/// One of the two records, with the calls to write and read it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Record {
    Desired,
    Demand,
}

const RECORDS: [Record; 2] = [Record::Desired, Record::Demand];

impl Record {
    fn name(self) -> &'static str {
        match self {
            Self::Desired => "desired",
            Self::Demand => "demand",
        }
    }

    /// Writes content number `content`. Contents of different numbers differ.
    async fn write(self, store: &Store, token: u64, content: u64) -> Result<(), Error> {
        match self {
            Self::Desired => store.set_desired(desired(token, content)).await,
            Self::Demand => store.set_demand(demand(token, content)).await,
        }
    }

    async fn is(self, store: &Store, token: u64, content: u64) -> bool {
        let snapshot = store.snapshot().await.expect("snapshot");
        match self {
            Self::Desired => snapshot.desired.as_deref() == Some(&desired(token, content)),
            Self::Demand => snapshot.demand.as_deref() == Some(&demand(token, content)),
        }
    }

    fn event(self, token: u64, content: u64) -> Event {
        match self {
            Self::Desired => Event::DesiredChanged(Arc::new(desired(token, content))),
            Self::Demand => Event::DemandChanged(Some(Arc::new(demand(token, content)))),
        }
    }

    /// The event that the feed has for replaced content.
    fn replaced(self, token: u64, content: u64) -> Event {
        match self {
            Self::Desired => self.event(token, content),
            Self::Demand => Event::DemandChanged(None),
        }
    }
}

/// A desired state under `token`. Different values of `content` make it differ.
pub(super) fn desired(token: u64, content: u64) -> DesiredState {
    let variant = |name: &str, workers, pinned| DesiredVariant {
        variant: key(name, "w").variant,
        workers,
        pinned,
        needed: u32::from(pinned),
    };
    let many = u32::try_from(content).unwrap_or(u32::MAX);
    let variants = vec![
        variant("b", Count::Everywhere, false),
        variant("a", Count::Workers(many), true),
    ];
    let batch = |max_rows| PlannedBatch {
        variant: key("a", "w").variant,
        device_type: DeviceTypeName::new("cpu-8").expect("valid"),
        max_rows,
    };
    DesiredState::new(token, variants, 600_000)
        .with_scaling(vec![pool(many)], vec![decision(content)])
        .with_batches(vec![batch(many), batch(many / 2)])
}

/// A pool that has every optional field.
fn pool(desired: u32) -> Pool {
    let device_type = DeviceTypeName::new("cpu-8").expect("valid");
    let facts = DeviceType {
        name: device_type.clone(),
        engines: vec![EngineName("onnxruntime".to_owned())],
        slots: 8,
        memory_bytes: 1 << 34,
        price_per_hour_usd: 0.375,
        start_ms: 60_000,
    };
    Pool {
        device_type,
        desired,
        least: 0,
        most: 9,
        provider: Some("process".into()),
        facts: Some(Arc::new(facts)),
        trouble: Some("no room".into()),
    }
}

/// A decision that has every optional field.
fn decision(number: u64) -> Decision {
    Decision {
        number,
        at_ms: 1_700_000_000_000,
        subject: Subject::Pool(DeviceTypeName::new("cpu-8").expect("valid")),
        action: Action::AddWorkers,
        from: 1,
        to: 2,
        reason: "more is asked for".into(),
        inputs: vec![Input {
            application: application("app"),
            class: TargetClass::default(),
            offered_rps: 12.5,
            planned_rps: 20.25,
        }],
        alternatives: vec![Alternative {
            what: "`gpu` alone".into(),
            cost_per_hour_usd: Some(3.5),
            why_not: "costs more".into(),
        }],
    }
}

/// A demand whose rows have every optional field. Different values of `content` make it differ.
pub(super) fn demand(token: u64, content: u64) -> Demand {
    let class = TargetClass::of(&Targets {
        latency_ms: Some(100.0),
        min_quality: Some(-0.5),
        ..Targets::default()
    });
    let served = ApplicationDemand {
        application: application("app"),
        class,
        variant: Some(key("a", "w").variant),
        offered: content + (1 << 52),
        input_rows: content + (1 << 53),
        sized_rows: 1.5,
        latency_ms: Some((64.0, 100.5)),
        answered: content,
        late: 3,
        kept: 2,
        refused: BTreeMap::from([(Code::Overloaded, 1), (Code::DeadlineExceeded, 2)]),
        queueing_ms: 17,
        step: None,
    };
    let unserved = ApplicationDemand {
        class: TargetClass::default(),
        variant: None,
        refused: BTreeMap::from([(Code::TargetInfeasible, 5)]),
        step: Some(StepDemand {
            of: StepOf {
                pipeline: application("pages"),
                step: "read".to_owned(),
                after: vec!["find".to_owned()],
                asks: Route::Application(application("app")),
            },
            runs: 1.0 / 3.0,
            whole_ms: Some((100.5, 200.0)),
            accuracy: Some(WholeAccuracy {
                least: 0.75,
                measured: 0.8,
                answered: vec![key("a", "w").variant],
            }),
        }),
        ..served.clone()
    };
    let device = DeviceDemand {
        device: "cuda".into(),
        idle_share: 0.25,
        slots: 4,
    };
    Demand {
        token,
        window_ms: 1000,
        applications: vec![served, unserved],
        devices: vec![device],
        costs: costs(),
        agreement: vec![AgreementRow {
            variant: VariantId::new("m-fast").expect("a name"),
            rows: content,
            agreeing: content / 2,
        }],
        trials: vec![TrialRow {
            queries: content,
            errors: 3,
            late: 2,
            rows: 1 << 52,
            ..TrialRow::of(ModelId::new("m").expect("a name"))
        }],
    }
}

/// Costs whose rows have every optional field.
fn costs() -> Costs {
    let named = CostRow {
        application: application("app"),
        variant: Some(key("a", "w").variant),
        device_type: DeviceTypeName::new("cpu-8").ok(),
        usd: 0.125,
        offline_usd: 1.0 / 3.0,
        idle_usd: 1e-9,
        device_seconds: 1e9,
        queries: 1 << 52,
        offline_queries: 3,
    };
    let others = CostRow {
        variant: None,
        device_type: None,
        ..named.clone()
    };
    Costs {
        since_ms: 1_700_000_000_000,
        until_ms: 1_700_000_001_000,
        unattributed_usd: 0.1,
        rows: vec![others, named],
    }
}

/// A write replaces the whole content, and a snapshot and the feed have the new content.
pub async fn records_are_replaced_as_a_whole(store: Store) {
    for record in RECORDS {
        let mut view = View::from(store.snapshot().await.expect("snapshot"));
        let start = view.cursor;
        record.write(&store, 7, 1).await.expect("first");
        assert!(record.is(&store, 7, 1).await, "{record:?}");
        follow(&store, &mut view).await;
        record.write(&store, 7, 2).await.expect("second");
        assert!(record.is(&store, 7, 2).await, "{record:?}");
        follow(&store, &mut view).await;
        record
            .write(&store, 8, 3)
            .await
            .expect("of the next leader");
        assert!(record.is(&store, 8, 3).await, "{record:?}");
        follow(&store, &mut view).await;
        let events = store.changes(start).await.expect("changes").events;
        let [first, second] = [1, 2].map(|content| record.replaced(7, content));
        assert_eq!(events, [first, second, record.event(8, 3)]);
    }
}

/// An empty store has none of the records. An empty desired state is not the same as none.
pub async fn records_are_absent_until_they_are_written(store: Store) {
    let Snapshot {
        desired, demand, ..
    } = store.snapshot().await.expect("snapshot");
    assert_eq!((desired, demand), (None, None));
    let nothing = (DesiredState::default(), Demand::default());
    store.set_desired(nothing.0.clone()).await.expect("desired");
    store.set_demand(nothing.1.clone()).await.expect("demand");
    let Snapshot {
        desired, demand, ..
    } = store.snapshot().await.expect("snapshot");
    assert_eq!(desired.as_deref(), Some(&nothing.0));
    assert_eq!(demand.as_deref(), Some(&nothing.1));
}

/// A writer with a token less than one seen is refused and changes nothing. Each record has its own
/// tokens.
pub async fn records_are_fenced_by_their_tokens(store: Store) {
    Record::Desired
        .write(&store, 1000, 1)
        .await
        .expect("desired");
    Record::Demand.write(&store, 10, 1).await.expect("demand");
    Record::Demand.write(&store, 999, 2).await.expect("demand");
    for (record, token, content) in [(Record::Desired, 1000, 1), (Record::Demand, 999, 2)] {
        let start = head(&store).await;
        for lesser in [token - 1, 10, 0] {
            let refused = record.write(&store, lesser, 9).await;
            match refused {
                Err(Error::Fenced {
                    record: name,
                    token: told,
                    seen,
                }) => assert_eq!((name, told, seen), (record.name(), lesser, token)),
                other => panic!("{record:?} under {lesser}: {other:?}"),
            }
        }
        assert!(record.is(&store, token, content).await, "{record:?}");
        assert_eq!(store.changes(start).await.expect("changes").events, []);
    }
}

/// Writing the same content again is no event. Under a greater token it fences writers with lesser
/// tokens.
pub async fn records_that_say_the_same_are_no_event(store: Store) {
    for record in RECORDS {
        record.write(&store, 5, 1).await.expect("first");
        let start = head(&store).await;
        record.write(&store, 5, 1).await.expect("again");
        record.write(&store, 9, 1).await.expect("by another");
        assert!(record.is(&store, 5, 1).await, "{record:?}");
        assert_eq!(store.changes(start).await.expect("changes").events, []);
        let refused = record.write(&store, 8, 2).await;
        let fenced = matches!(refused, Err(Error::Fenced { seen: 9, .. }));
        assert!(fenced, "{record:?}: {refused:?}");
        assert!(record.is(&store, 5, 1).await, "{record:?}");
    }
}

/// A demand with the largest number of rows is accepted. One more row, or an invalid share, is
/// refused and changes nothing.
pub async fn demand_beyond_its_bounds_is_refused(store: Store) {
    let full = |rows| Demand {
        applications: vec![demand(1, 1).applications[1].clone(); rows],
        ..demand(1, 1)
    };
    let most = full(MOST_DEMAND_ROWS);
    store.set_demand(most.clone()).await.expect("the most rows");
    let refused = store.set_demand(full(MOST_DEMAND_ROWS + 1)).await;
    let many = matches!(refused, Err(Error::TooManyRows { rows }) if rows > MOST_DEMAND_ROWS);
    assert!(many, "{refused:?}");
    for share in [f64::NAN, -0.1, 1.5] {
        let mut wrong = demand(1, 1);
        wrong.devices[0].idle_share = share;
        let refused = store.set_demand(wrong).await;
        let is_share = matches!(refused, Err(Error::IdleShare { .. }));
        assert!(is_share, "{refused:?}");
    }
    let mut many = demand(1, 1);
    many.costs.rows = vec![costs().rows[0].clone(); MOST_DEMAND_ROWS + 1];
    let refused = store.set_demand(many).await;
    assert!(
        matches!(refused, Err(Error::TooManyRows { .. })),
        "{refused:?}"
    );
    for amount in [f64::NAN, f64::INFINITY, -0.1] {
        let mut wrong = demand(1, 1);
        wrong.costs.rows[0].idle_usd = amount;
        let refused = store.set_demand(wrong).await;
        let is_amount = matches!(refused, Err(Error::Amount { .. }));
        assert!(is_amount, "{refused:?}");
    }
    let kept = store.snapshot().await.expect("snapshot").demand;
    assert_eq!(kept.as_deref(), Some(&most));
}
