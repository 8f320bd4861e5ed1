//! Types of devices: the price and run time of a variant on each, and measurements there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sextant_dispatcher::{
    Config,
    profiles::{ProfileConfig, ProfileService},
};
use sextant_registry::{JobKind, NewJob, NewModel, Registrant, Registry};
use sextant_rpc::{Answer, Candidate, Load, WorkerClient};
use sextant_types::{
    ApplicationId, Code, DataType, DeviceType, DeviceTypeName, Digest, EngineName, ModelId, Stage,
    Targets, Variant, VariantId, WorkerId,
};
use tokio::{sync::watch, task::JoinHandle};

use crate::world::{Kind, PATIENCE, World, query, wait_until};

/// A variant that takes long where it was registered.
fn run() -> Kind {
    Kind {
        latency_ms: 40.0,
        ..Kind::default()
    }
}

fn name(name: &str) -> DeviceTypeName {
    DeviceTypeName::new(name).unwrap()
}

/// A device of one slot.
fn device(of: &str, price_per_hour_usd: f64) -> DeviceType {
    DeviceType {
        name: name(of),
        engines: vec![EngineName("doubling".to_owned())],
        slots: 1,
        memory_bytes: 1000,
        price_per_hour_usd,
        start_ms: 60_000,
    }
}

/// A cheap device, on which variants are registered, and an expensive one.
async fn two(config: Config) -> World {
    World::with_types(config, vec![device("cheap", 0.36), device("dear", 36.0)]).await
}

/// Publishes a variant that was registered on the cheap device and is ten times as fast on the expensive one, and loads
/// it on both.
async fn serve(world: &World) -> Arc<Variant> {
    let variant = world.publish_with("app", run(), |variant| {
        variant.measured_on = Some(name("cheap"));
        let fast = variant.profile.slowed(0.1).into_owned();
        variant.profiles = BTreeMap::from([(name("dear"), fast)]);
    });
    let variant = variant.await;
    load(&world.workers, &variant).await;
    variant
}

async fn load(workers: &[WorkerClient], variant: &Arc<Variant>) {
    for worker in workers {
        worker
            .load(Load::at_once(Arc::clone(variant)))
            .await
            .unwrap();
    }
}

/// The candidates for a query without targets, cheapest first, once there are this many.
async fn candidates(world: &World, count: usize) -> Vec<Candidate> {
    loop {
        let mut query = query(&[1.0, 2.0]);
        query.explain = true;
        let answer: Answer = world.ask(query).await.unwrap();
        let mut candidates = answer.explanation.unwrap().candidates;
        if candidates.len() == count {
            candidates.sort_by(|a, b| a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd));
            return candidates;
        }
        tokio::task::yield_now().await;
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_costs_what_the_device_costs_and_takes_what_was_measured_there() {
    let world = two(Config::default()).await;
    serve(&world).await;
    let found = tokio::time::timeout(PATIENCE, candidates(&world, 2))
        .await
        .unwrap();
    // By hand: 0.36 USD an hour at 1,000 rows a second; 36 USD at 10,000.
    assert!(close(found[0].cost_per_1k_usd, 0.0001), "{found:?}");
    assert!(close(found[1].cost_per_1k_usd, 0.001), "{found:?}");
    assert!(found[0].expected_ms >= 40.0, "{found:?}");
    world
        .dispatcher
        .remove_worker(&WorkerId::new("w0").unwrap());
    let mut too_cheap = query(&[1.0, 2.0]);
    too_cheap.targets = Targets {
        max_cost_per_1k_usd: Some(0.0005),
        ..Targets::default()
    };
    // Until the index is rebuilt a query may still be sent to the device that has gone.
    let refused = async {
        loop {
            match world.ask(too_cheap.clone()).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_eq!(error.code, Code::TargetInfeasible);
    assert!(close(error.closest[0].cost_per_1k_usd, 0.001), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_measured_is_estimated() {
    let config = Config {
        estimate_factor: 50.0,
        ..Config::default()
    };
    let world = two(config).await;
    let variant = world.publish_with("app", run(), |variant| {
        variant.measured_on = Some(name("cheap"));
    });
    load(&world.workers, &variant.await).await;
    let found = tokio::time::timeout(PATIENCE, candidates(&world, 2))
        .await
        .unwrap();
    // A fiftieth of the rows for a hundred times the price, and half as much more, because it may be wrong.
    assert!(
        close(found[1].cost_per_1k_usd, 0.0001 * 5000.0 * 1.5),
        "{found:?}"
    );
    assert!(found[1].expected_ms >= 3000.0, "{found:?}");
}

/// A registry that has the variant's model.
pub async fn registry(world: &World, variant: &Variant) -> Registry {
    let registry = crate::world::registry(world).await;
    register(&registry, &new_model(1)).await;
    registry
        .put_variants(std::slice::from_ref(variant))
        .await
        .unwrap();
    registry
}

fn new_model(content: u8) -> NewModel {
    NewModel {
        name: ModelId::new("m").unwrap(),
        version: None,
        current: false,
        application: ApplicationId::new("app").unwrap(),
        digest: Digest::from_bytes([content; 32]),
        validation: Digest::from_bytes([2; 32]),
        size_bytes: 1,
        padding: None,
        outputs: Vec::new(),
        constants: Default::default(),
        names: Default::default(),
        data: Vec::new(),
        classes: Vec::new(),
        unlabelled: false,
        registered_by: None,
    }
}

async fn register(registry: &Registry, model: &NewModel) {
    let spec = serde_json::json!({});
    let job = NewJob::new(JobKind::Register, model.application.clone(), spec);
    let job = job.for_model(model.name.clone());
    registry.register_model(model, &job, 1).await.unwrap();
}

/// Ends the current registration.
async fn end_registration(registry: &Registry) {
    let claim = registry.claim(JobKind::Register, "me", 100, 2);
    let job = claim.await.unwrap().expect("a registration");
    let nothing = serde_json::Value::Null;
    registry.finish(&job.id, "me", &nothing, 3).await.unwrap();
}

/// Measures until it is dropped.
pub struct Measuring(JoinHandle<()>);

impl Measuring {
    pub fn start(world: &World, registry: &Registry) -> Self {
        let config = ProfileConfig {
            // The worker's utilisation comes with its service, which does not run here.
            quiet_utilization: 1.0,
            budget: Duration::ZERO,
            back_off: Duration::from_millis(1),
            ..ProfileConfig::default()
        };
        let (dispatcher, metadata) = (Arc::clone(&world.dispatcher), Arc::clone(&world.metadata));
        let service = ProfileService::new(config, dispatcher, registry.clone(), metadata);
        let leads = watch::Sender::new(true).subscribe();
        Self(tokio::spawn(
            service.run_while(leads, std::future::pending()),
        ))
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_is_measured_where_it_is_loaded_and_was_not_registered() {
    let world = two(Config::default()).await;
    let variant = world.publish_with("app", run(), |variant| {
        variant.measured_on = Some(name("cheap"));
    });
    let variant = variant.await;
    let registry = registry(&world, &variant).await;
    let _measuring = Measuring::start(&world, &registry);
    load(&world.workers, &variant).await;
    let published = published(&world, &variant.id).await;
    let measured = published.measured(&name("dear")).expect("it is measured");
    let batches: Vec<u32> = measured.batches.iter().map(|point| point.batch).collect();
    assert_eq!(batches, [1, 2, 4]);
    assert!(
        measured.batches.iter().all(|point| point.samples >= 5),
        "{measured:?}"
    );
    assert!(measured.saturation_rps > 0.0, "{measured:?}");
    assert_eq!(measured.weights_bytes, variant.profile.weights_bytes);
    let stored = registry.variant(&variant.id).await.unwrap();
    assert_eq!(stored.profiles.keys().collect::<Vec<_>>(), [&name("dear")]);
    assert_eq!(stored.profile, variant.profile, "what was registered stays");
    assert!(registry.failed_profiles().await.unwrap().is_empty());
}

/// The variant as it is published, once it is measured on the expensive device.
async fn published(world: &World, id: &VariantId) -> Arc<Variant> {
    let published = async {
        loop {
            let variants = world.metadata.variants().await.unwrap();
            let known = variants.into_iter().find(|it| it.id == *id);
            if let Some(known) = known.filter(|it| it.measured(&name("dear")).is_some()) {
                return known;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, published)
        .await
        .expect("it is measured and published")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_measured_stays_a_candidate_and_of_its_registrant() {
    let world = two(Config::default()).await;
    let current = serve(&world).await;
    let registry = registry(&world, &current).await;
    end_registration(&registry).await;
    let foreign = NewModel {
        registered_by: Some(Registrant {
            name: "key".to_owned(),
            is_administrator: false,
        }),
        ..new_model(2)
    };
    register(&registry, &foreign).await;
    end_registration(&registry).await;
    let model = ModelId::new("m.v2").unwrap();
    let release = registry.model(&model).await.unwrap().release;
    assert_eq!(release.stage, Stage::Candidate);
    let kind = Kind {
        name: "m.v2-a",
        ..run()
    };
    let candidate = world.publish_with("app", kind, |variant| {
        variant.measured_on = Some(name("cheap"));
        variant.model = model;
        variant.release = release;
        variant.foreign = true;
    });
    let candidate = candidate.await;
    let stored = std::slice::from_ref(&*candidate);
    registry.put_variants(stored).await.unwrap();
    let _measuring = Measuring::start(&world, &registry);
    load(&world.workers, &candidate).await;
    let measured = published(&world, &candidate.id).await;
    assert_eq!(measured.release, candidate.release);
    assert!(measured.foreign, "its registrant is no administrator");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_to_measure_is_noted_and_tried_again_and_queries_are_served() {
    let world = two(Config::default()).await;
    // Another type than the engine takes, so it fails with any zeros that it is sent.
    let variant = world.publish_with("app", run(), |variant| {
        variant.measured_on = Some(name("cheap"));
        variant.signature.inputs[0].data_type = DataType::Int32;
    });
    let variant = variant.await;
    let registry = registry(&world, &variant).await;
    load(&world.workers, &variant).await;
    let good = Kind {
        name: "m-good",
        ..run()
    };
    let _measuring = Measuring::start(&world, &registry);
    let failed = tokio::time::timeout(PATIENCE, async {
        loop {
            let failed = registry.failed_profiles().await.unwrap();
            if let Some(failed) = failed.into_iter().find(|failed| failed.failures >= 2) {
                return failed;
            }
            tokio::task::yield_now().await;
        }
    });
    let failed = failed.await.expect("it is tried again");
    assert_eq!(
        (failed.variant, failed.device_type),
        (variant.id.clone(), name("dear"))
    );
    assert!(
        failed
            .failure
            .is_some_and(|failure| !failure.message.is_empty())
    );
    world.serve_for("other", good).await;
    let mut other = query(&[1.0, 2.0]);
    other.route = crate::world::variant_route("m-good");
    world.ask(other).await.unwrap();
    wait_until(|| world.dispatcher.waiting() == 0).await;
}

/// Two variants that were registered on a device a hundred times as fast as the one here. `m-best` was measured here.
/// `m-other`, which it dominates, was not.
async fn on_slow_hardware() -> (World, Arc<Variant>, Arc<Variant>) {
    let world = World::with_types(Config::default(), vec![device("slow", 0.36)]).await;
    let kind = |of| Kind { name: of, ..run() };
    let best = world.publish_with("app", kind("m-best"), |variant| {
        variant.measured_on = Some(name("quick"));
        let slow = variant.profile.slowed(100.0).into_owned();
        variant.profiles = BTreeMap::from([(name("slow"), slow)]);
    });
    let best = best.await;
    let other = world.publish_with("app", kind("m-other"), |variant| {
        variant.measured_on = Some(name("quick"));
        variant.profile.saturation_rps *= 0.9;
        variant.dominated_by = Some(VariantId::new("m-best").unwrap());
    });
    let other = other.await;
    (world, best, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_by_name_does_not_turn_the_traffic_of_its_application() {
    let (world, best, other) = on_slow_hardware().await;
    load(&world.workers, &best).await;
    let asked = async || world.ask(query(&[1.0, 2.0])).await.unwrap().variant;
    assert_eq!(asked().await, best.id);
    let mut named = query(&[1.0, 2.0]);
    named.route = crate::world::variant_route("m-other");
    assert_eq!(world.ask(named).await.unwrap().variant, other.id);
    for _ in 0..3 {
        assert_eq!(asked().await, best.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_loaded_is_measured_though_another_dominates_it() {
    let (world, _, other) = on_slow_hardware().await;
    let registry = registry(&world, &other).await;
    let _measuring = Measuring::start(&world, &registry);
    load(&world.workers, &other).await;
    let measured = tokio::time::timeout(PATIENCE, async {
        loop {
            let variants = world.metadata.variants().await.unwrap();
            let known = variants.iter().find(|it| it.id == other.id);
            if known.is_some_and(|it| it.measured(&name("slow")).is_some()) {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    measured.await.expect("it is measured and published");
}
