//! Answers are compared with those of the uploaded file.

use std::{sync::atomic::Ordering, time::Instant};

use prometheus_client::{encoding::text::encode, registry::Registry};
use sextant_dispatcher::{Config, Sampling};
use sextant_types::{Precision, Variant};

use crate::hardware::{Measuring, registry};
use crate::world::{
    DRAWS, Kind, MIXES, PATIENCE, SWAPPED, World, query, variant_route, wait_until,
};

fn all() -> Config {
    Config {
        agreement: Sampling {
            share: 1.0,
            quiet_utilization: 1.0,
        },
        ..Config::default()
    }
}

const QUICK: Kind = Kind {
    name: "m-quick",
    quality: 0.8,
    latency_ms: 1.0,
    load_ms: 1.0,
    cost: 0.1,
    memory: 100,
    artefact: SWAPPED,
    threads: 1,
    max_batch: 4,
};

fn in_bytes(variant: &mut Variant) {
    variant.spec.precision = Precision::Int8Static;
}

fn exposition(world: &World) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    world.dispatcher.register_metrics(&mut registry);
    encode(&mut text, &registry).unwrap();
    text
}

fn counts(world: &World, name: &str) -> Option<u64> {
    of_variant(world, &format!("agreement_{name}"))
}

fn of_variant(world: &World, name: &str) -> Option<u64> {
    let start = format!("dispatcher_{name}_total{{");
    let text = exposition(world);
    let line = text.lines().find(|line| line.starts_with(&start))?;
    assert!(line.contains("application=\"app\""));
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_another_precision_are_compared_with_the_uploaded_files() {
    let world = World::with(all(), 1).await;
    world.serve_with("app", QUICK, in_bytes).await;
    world.serve(Kind::default()).await;
    let ask = async |values: &[f32]| {
        let mut query = query(values);
        query.route = variant_route("m-quick");
        world.ask(query).await.unwrap();
    };
    // One at a time: queries that come while a few wait are passed over.
    ask(&[3.0, 1.0, 7.0, 2.0]).await;
    wait_until(|| counts(&world, "rows") == Some(2)).await;
    assert_eq!(counts(&world, "agreeing_rows"), Some(2));
    // The greater element is at the other position.
    ask(&[1.0, 3.0, 7.0, 2.0]).await;
    wait_until(|| counts(&world, "rows") == Some(4)).await;
    assert_eq!(counts(&world, "agreeing_rows"), Some(3));
    let begun = Instant::now();
    loop {
        let demand = world.metadata.snapshot().await.unwrap().demand;
        let rows = demand.map_or_else(Vec::new, |demand| demand.agreement.clone());
        if let [row] = &rows[..]
            && row.rows == 4
        {
            assert_eq!((row.variant.as_str(), row.agreeing), ("m-quick", 3));
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{rows:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_loaded_for_a_comparison() {
    let world = World::with(all(), 1).await;
    world.publish(Kind::default()).await;
    world.serve_with("app", QUICK, in_bytes).await;
    let mut query = query(&[1.0, 2.0]);
    query.route = variant_route("m-quick");
    world.ask(query).await.unwrap();
    wait_until(|| counts(&world, "passed_over") == Some(1)).await;
    assert_eq!(counts(&world, "rows"), Some(0));
    assert!(!world.dispatcher.is_loaded(&variant_route("m-a")));
}

/// Two queries that share a batch. Returns the rows of the batch.
async fn in_company(world: &World) -> u32 {
    let runs = world.gate.entered.load(Ordering::SeqCst);
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) > runs).await;
    let others = [1.0f32, 2.0].map(|number| world.send(query(&[number, 10.0 * number])));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    world.gate.open();
    first.await.unwrap().unwrap();
    let mut rows = 0;
    for other in others {
        rows = other.await.unwrap().unwrap().timings.batch_rows;
    }
    rows
}

fn kind(artefact: &'static [u8]) -> Kind {
    Kind {
        artefact,
        ..Kind::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_whose_queries_change_each_other_leaves_batches() {
    let world = World::with(all(), 1).await;
    let variant = world.serve(kind(MIXES)).await;
    let registry = registry(&world, &variant).await;
    let _storing = Measuring::start(&world, &registry);
    assert_eq!(in_company(&world).await, 2);
    wait_until(|| of_variant(&world, "company_differing_queries") == Some(2)).await;
    assert_eq!(of_variant(&world, "company_queries"), Some(2));
    let begun = Instant::now();
    loop {
        let variants = world.metadata.variants().await.unwrap();
        if variants[0].why_apart().is_some() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    while in_company(&world).await > 1 {
        assert!(begun.elapsed() < PATIENCE);
    }
    // A later leader knows it as well.
    while registry.variant(&variant.id).await.unwrap().apart.is_none() {
        assert!(begun.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_as_alone_and_answers_drawn_at_random_stay_in_batches() {
    for artefact in [b"fine", DRAWS] {
        let world = World::with(all(), 1).await;
        world.serve(kind(artefact)).await;
        for round in 1..=3 {
            assert_eq!(in_company(&world).await, 2);
            wait_until(|| of_variant(&world, "company_queries") == Some(2 * round)).await;
        }
        assert_eq!(of_variant(&world, "company_differing_queries"), Some(0));
        let variants = world.metadata.variants().await.unwrap();
        assert_eq!(variants[0].why_apart(), None);
    }
}
