//! The demand that the leading dispatcher reports.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use sextant_dispatcher::Config;
use sextant_fleet::unsteady::UnsteadyStore;
use sextant_metadata::{ApplicationDemand, Demand, DeviceDemand};
use sextant_rpc::Dispatch;
use sextant_types::{Code, TargetClass, Targets, VariantId, WholeAccuracy};

use crate::{
    fleet::{Fleet, ask},
    severable::HoldingFrontEnd,
    world::{
        Kind, PATIENCE, SLOW, World, for_step, query, row, targets, variant_route, wait_until,
    },
};

/// All records of a world from a moment on, summed up.
#[derive(Default)]
struct Sums(BTreeMap<(String, TargetClass, Option<String>), ApplicationDemand>);

impl Sums {
    fn add(&mut self, demand: &Demand) {
        for row in &demand.applications {
            let variant = row.variant.as_ref().map(ToString::to_string);
            let key = (row.application.to_string(), row.class, variant);
            let sum = self.0.entry(key).or_insert_with(|| ApplicationDemand {
                offered: 0,
                input_rows: 0,
                sized_rows: 0.0,
                answered: 0,
                late: 0,
                kept: 0,
                refused: BTreeMap::new(),
                queueing_ms: 0,
                ..row.clone()
            });
            sum.offered += row.offered;
            sum.input_rows += row.input_rows;
            sum.latency_ms = match (sum.latency_ms, row.latency_ms) {
                (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
                (one, other) => one.or(other),
            };
            sum.answered += row.answered;
            sum.late += row.late;
            sum.queueing_ms += row.queueing_ms;
            for (code, count) in &row.refused {
                *sum.refused.entry(*code).or_default() += count;
            }
        }
    }

    /// The strictest and the loosest latency target.
    fn latency_ms(
        &self,
        application: &str,
        targets: &Targets,
        variant: &str,
    ) -> Option<(f64, f64)> {
        let class = TargetClass::of(targets);
        let key = (application.to_owned(), class, Some(variant.to_owned()));
        self.0.get(&key)?.latency_ms
    }

    fn of(&self, application: &str, targets: &Targets, variant: Option<&str>) -> Option<[u64; 3]> {
        let class = TargetClass::of(targets);
        let key = (
            application.to_owned(),
            class,
            variant.map(ToOwned::to_owned),
        );
        let row = self.0.get(&key)?;
        Some([row.offered, row.answered, row.late])
    }

    fn refused(
        &self,
        application: &str,
        targets: &Targets,
        variant: Option<&str>,
        code: Code,
    ) -> u64 {
        let class = TargetClass::of(targets);
        let key = (
            application.to_owned(),
            class,
            variant.map(ToOwned::to_owned),
        );
        let row = self.0.get(&key);
        row.and_then(|row| row.refused.get(&code))
            .copied()
            .unwrap_or(0)
    }
}

/// Waits until the records add up to this many queries.
async fn sums(store: &UnsteadyStore, queries: u64) -> Sums {
    let told = || {
        let mut sums = Sums::default();
        let taken = store.demands().into_iter().filter(|(_, taken)| *taken);
        taken.for_each(|(demand, _)| sums.add(&demand));
        sums
    };
    wait_until(|| told().0.values().map(|row| row.offered).sum::<u64>() >= queries).await;
    told()
}

/// A world of one worker over a store that records what it is told.
async fn world(config: Config) -> (World, Arc<UnsteadyStore>) {
    let store = Arc::new(UnsteadyStore::new(1000));
    let noting = Arc::clone(&store);
    (
        World::over(noting, config, (1, 1), |worker| worker).await,
        store,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_is_told_under_its_application_class_and_variant() {
    let (world, store) = world(Config::default()).await;
    world.serve(Kind::default()).await;
    let other = Kind {
        name: "n-a",
        ..Kind::default()
    };
    world.serve_for("other", other).await;
    let none = Targets::default();
    for number in 0..3 {
        world.ask(query(&[number as f32, 0.0])).await.unwrap();
    }
    let mut named = query(&[1.0, 0.0]);
    named.route = variant_route("n-a");
    world.ask(named).await.unwrap();
    let mut infeasible = query(&[1.0, 0.0]);
    infeasible.targets = targets(Some(5000.0), Some(0.99));
    let error = world.ask(infeasible.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::TargetInfeasible);
    let mut failing = query(&[-1.0, 0.0]);
    failing.targets = targets(None, Some(0.5));
    let error = world.ask(failing.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::EngineFailed);
    let mut late = query(&[SLOW, 0.0]);
    late.targets = targets(Some(10.0), None);
    late.best_effort = true;
    assert!(!world.ask(late.clone()).await.unwrap().targets_met);
    let sums = sums(&store, 7).await;
    assert_eq!(sums.of("app", &none, Some("m-a")), Some([3, 3, 0]));
    assert_eq!(sums.of("other", &none, Some("n-a")), Some([1, 1, 0]));
    assert_eq!(sums.of("app", &infeasible.targets, None), Some([1, 0, 0]));
    let code = Code::TargetInfeasible;
    assert_eq!(sums.refused("app", &infeasible.targets, None, code), 1);
    let code = Code::EngineFailed;
    assert_eq!(sums.refused("app", &failing.targets, Some("m-a"), code), 1);
    assert_eq!(sums.of("app", &late.targets, Some("m-a")), Some([1, 0, 1]));
    assert_eq!(sums.0.len(), 5, "and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_too_long_is_told_with_its_wait() {
    let config = Config {
        max_waiting_rows: 1,
        ..Config::default()
    };
    let (world, store) = world(config).await;
    world.serve(Kind::default()).await;
    world.gate.close();
    let running = world.send(query(&[1.0, 0.0]));
    let entered = || world.gate.entered.load(Ordering::SeqCst);
    wait_until(|| entered() == 1).await;
    let waiting = world.send(query(&[2.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    let refused = world.ask(query(&[3.0, 0.0])).await.unwrap_err();
    assert_eq!(refused.code, Code::Overloaded, "{refused}");
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    world.gate.open();
    running.await.unwrap().unwrap();
    let sums = sums(&store, 3).await;
    let none = Targets::default();
    assert_eq!(sums.of("app", &none, Some("m-a")), Some([3, 1, 0]));
    let refused = sums.refused("app", &none, Some("m-a"), Code::Overloaded);
    assert_eq!(refused, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_front_ends_are_told_and_those_that_met_no_leader_are_not() {
    let store = Arc::new(UnsteadyStore::new(1000));
    let fleet = Fleet::over(Arc::clone(&store) as _, 1).await;
    let world = &fleet.world;
    world.dispatcher.set_leading(false);
    let error = world.ask(query(&[1.0, 0.0])).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    world.dispatcher.set_leading(true);
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-a"))).await;
    let holding = HoldingFrontEnd::new(&fleet.post, row(&[1.0, 0.0]));
    let placed = world.dispatcher.place(ask(1), holding as _);
    tokio::time::timeout(PATIENCE, placed)
        .await
        .expect("placed")
        .unwrap();
    let sums = sums(&store, 1).await;
    let told = sums.of("app", &ask(1).targets, Some("m-a"));
    assert_eq!(told, Some([1, 1, 0]));
    assert_eq!(sums.0.len(), 1, "and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_shut_out_tells_nothing() {
    let (world, store) = world(Config::default()).await;
    world.serve(Kind::default()).await;
    let newer = Demand {
        token: 7,
        window_ms: 1234,
        ..Demand::default()
    };
    world.metadata.set_demand(newer.clone()).await.unwrap();
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    let refused = || store.demands().iter().filter(|(_, taken)| !taken).count();
    wait_until(|| refused() >= 2).await;
    let told = world.metadata.snapshot().await.unwrap().demand;
    assert_eq!(told.as_deref(), Some(&newer));
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_told_with_their_slots() {
    let store = Arc::new(UnsteadyStore::new(1000));
    let noting = Arc::clone(&store);
    let world = World::over(noting, Config::default(), (2, 3), |worker| worker).await;
    world.serve(Kind::default()).await;
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    drop(sums(&store, 1).await);
    let (demand, _) = store.demands().pop().unwrap();
    let [
        DeviceDemand {
            device,
            idle_share,
            slots,
        },
    ] = &demand.devices[..]
    else {
        panic!("{:?}", demand.devices)
    };
    assert_eq!((&**device, *slots), ("cpu", 6));
    assert!((0.0..=1.0).contains(idle_share));
    assert!(demand.window_ms >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_the_span_of_latency_targets_are_told() {
    let (world, store) = world(Config::default()).await;
    world.serve(Kind::default()).await;
    for (latency_ms, row) in [(5000.0, &[1.0, 0.0][..]), (6000.0, &[1.0, 0.0, 2.0, 0.0])] {
        let mut query = query(row);
        query.targets = targets(Some(latency_ms), None);
        world.ask(query).await.unwrap();
    }
    let sums = sums(&store, 2).await;
    let class = targets(Some(5000.0), None);
    assert_eq!(
        sums.latency_ms("app", &class, "m-a"),
        Some((5000.0, 6000.0))
    );
    let rows: u64 = sums.0.values().map(|row| row.input_rows).sum();
    assert_eq!(rows, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_steps_of_pipelines_ask_is_told_with_the_step() {
    let (world, store) = world(Config::default()).await;
    world.serve(Kind::default()).await;
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    for whole_ms in [700.0, 900.0] {
        let mut asked = query(&[1.0, 0.0]);
        let mut step = for_step(whole_ms, None);
        step.accuracy = Some(WholeAccuracy {
            least: whole_ms / 1000.0,
            measured: 0.95,
            answered: vec![VariantId::new("m-a").unwrap()],
        });
        asked.step = Some(step);
        world.ask(asked).await.unwrap();
    }
    drop(sums(&store, 3).await);
    let demands = store.demands().into_iter().filter(|(_, taken)| *taken);
    let rows = demands.flat_map(|(demand, _)| demand.applications);
    let (steps, others): (Vec<_>, Vec<_>) = rows.partition(|row| row.step.is_some());
    assert_eq!(others.iter().map(|row| row.offered).sum::<u64>(), 1);
    assert_eq!(steps.iter().map(|row| row.offered).sum::<u64>(), 2);
    let told: Vec<_> = steps.iter().filter_map(|row| row.step.as_ref()).collect();
    assert_eq!(told.iter().map(|step| step.runs).sum::<f64>(), 0.5);
    let spans = told.iter().filter_map(|step| step.whole_ms);
    let span = spans.fold((f64::MAX, 0.0), |(least, most): (f64, f64), span| {
        (least.min(span.0), most.max(span.1))
    });
    assert_eq!(span, (700.0, 900.0));
    let accuracies = told.iter().filter_map(|step| step.accuracy.as_ref());
    let (least, measured) = accuracies.fold((0.0f64, 0.0), |(least, _), of| {
        (least.max(of.least), of.measured)
    });
    assert_eq!((least, measured), (0.9, 0.95));
    assert!(told.iter().all(|step| step.of.step == "read"), "{told:?}");
}
