//! The worker's metrics.

use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn batches_loads_failures_and_busy_time_are_shown() {
    let mut world = World::new().await;
    let mut registry = Registry::with_prefix("sextant");
    sextant_worker::register_metrics(&[Arc::clone(&world.worker)], &mut registry);
    let variant = world.loaded("m-a").await;
    world.infer("m-a", 1, now()).ok();
    world.send("m-a", vec![row(2, 2), row(3, 2)], now()).ok();
    world.infer("m-x", 1, now()).error();
    let used = world.used();
    let shown = text(&registry);
    let of = "{worker=\"w\",device=\"cpu\"";
    for line in [
        format!("sextant_worker_batches_total{of}}} 2"),
        format!("sextant_worker_rows_total{of}}} 3"),
        format!("sextant_worker_loads_total{of}}} 1"),
        format!("sextant_worker_unloads_total{of}}} 0"),
        format!("sextant_worker_failures_total{of},action=\"infer\",code=\"not_loaded\"}} 1"),
        format!("sextant_worker_slots{of}}} 1.0"),
        format!("sextant_worker_loaded_variants{of}}} 1.0"),
        format!("sextant_worker_memory_bytes{of}}} 1000.0"),
        format!("sextant_worker_memory_used_bytes{of}}} {used}.0"),
    ] {
        assert!(shown.lines().any(|it| it == line), "`{line}` in\n{shown}");
    }
    let (stop, running) = world.serve();
    let busy = format!("sextant_worker_busy_slot_seconds_total{of}}} ");
    until(|| {
        let shown = text(&registry);
        let line = shown.lines().find_map(|line| line.strip_prefix(&busy));
        line.expect("shown").parse::<f64>().expect("a number") > 0.0
    })
    .await;
    drop(stop);
    running.await.unwrap();
    let shown = text(&registry);
    let line = format!("sextant_worker_loaded_variants{of}}} 0.0");
    assert!(shown.lines().any(|it| it == line), "{variant:?}\n{shown}");
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}
