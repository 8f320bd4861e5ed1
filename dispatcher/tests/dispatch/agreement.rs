//! Answers compared with those of the file that was uploaded.

use std::time::Instant;

use prometheus_client::{encoding::text::encode, registry::Registry};
use sextant_dispatcher::{Config, Sampling};
use sextant_types::{Precision, Variant};

use crate::world::{Kind, PATIENCE, SWAPPED, World, query, variant_route, wait_until};

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
    let start = format!("dispatcher_agreement_{name}_total{{");
    let text = exposition(world);
    let line = text.lines().find(|line| line.starts_with(&start))?;
    assert!(line.contains("application=\"app\"") && line.contains("variant=\"m-quick\""));
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
    // One at a time: those that come while a few wait are passed over.
    ask(&[3.0, 1.0, 7.0, 2.0]).await;
    wait_until(|| counts(&world, "rows") == Some(2)).await;
    assert_eq!(counts(&world, "agreeing_rows"), Some(2));
    // The greater is at the other place.
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
