//! The metrics of workers.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use sextant_rpc::{ActionKind, Work};

use crate::Worker;

/// Reads the workers of a process at each scrape.
struct Look(Vec<Weak<Worker>>);

/// Name, help, unit, and the function that reads the value from a worker.
type Reading<T> = (&'static str, &'static str, Option<Unit>, fn(&Worker) -> T);

/// Adds the metrics of all workers of a process under `worker_`, each with the worker's name and
/// device. The metrics of a worker end with it.
pub fn register_metrics(workers: &[Arc<Worker>], registry: &mut Registry) {
    let workers = workers.iter().map(Arc::downgrade).collect();
    let registry = registry.sub_registry_with_prefix("worker");
    registry.register_collector(Box::new(Look(workers)));
}

fn counters() -> [Reading<u64>; 4] {
    [
        ("batches", "Batches run", None, |it| {
            it.succeeded(ActionKind::Infer)
        }),
        ("rows", "Rows in the batches run", None, |it| {
            it.shared.rows.load(Ordering::Relaxed)
        }),
        ("loads", "Variants loaded", None, |it| {
            it.succeeded(ActionKind::Load)
        }),
        ("unloads", "Variants unloaded", None, |it| {
            it.succeeded(ActionKind::Unload)
        }),
    ]
}

fn gauges() -> [Reading<f64>; 5] {
    [
        (
            "slots",
            "Slots for batches, on a processor one for each core",
            None,
            |it| it.cores.into(),
        ),
        (
            "utilization_ratio",
            "Share of its slots' time in which batches ran over the last second, 0 to 1",
            None,
            |it| it.info().utilization,
        ),
        ("loaded_variants", "Variants that are loaded", None, |it| {
            it.shared.instances().len() as f64
        }),
        (
            "memory",
            "Memory that loaded variants may occupy",
            Some(Unit::Bytes),
            |it| it.ledger.pages().bytes() as f64,
        ),
        (
            "memory_used",
            "Memory that loaded variants occupy",
            Some(Unit::Bytes),
            |it| it.ledger.pages().used_bytes() as f64,
        ),
    ]
}

impl Worker {
    fn succeeded(&self, kind: ActionKind) -> u64 {
        self.shared.log.counts(kind).0
    }

    fn labels(&self) -> [(&str, &str); 2] {
        let config = &self.config;
        [
            ("worker", config.worker.as_str()),
            ("device", &config.device),
        ]
    }
}

// === impl Look ===

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let workers: Vec<_> = self.0.iter().filter_map(Weak::upgrade).collect();
        for (name, help, unit, read) in counters() {
            let kind = MetricType::Counter;
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for worker in &workers {
                let labels = worker.labels();
                let row = family.encode_family(&labels)?;
                ConstCounter::new(read(worker)).encode(row)?;
            }
        }
        for (name, help, unit, read) in gauges() {
            let kind = MetricType::Gauge;
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for worker in &workers {
                let labels = worker.labels();
                let row = family.encode_family(&labels)?;
                ConstGauge::new(read(worker)).encode(row)?;
            }
        }
        busy(&workers, &mut encoder)?;
        failures(&workers, &mut encoder)
    }
}

/// Slot time is counted each time a worker looks at its instances.
fn busy(workers: &[Arc<Worker>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time for which batches kept slots, added up over the slots";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("busy_slot", help, unit, MetricType::Counter)?;
    let seconds =
        |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
    for worker in workers {
        let labels = worker.labels();
        let row = family.encode_family(&labels)?;
        ConstCounter::new(seconds(&worker.shared.busy_slot_nanos)).encode(row)?;
    }
    Ok(())
}

fn failures(workers: &[Arc<Worker>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Actions that the worker was told and did not carry out, by code";
    let mut family = encoder.encode_descriptor("failures", help, None, MetricType::Counter)?;
    for worker in workers {
        for (action, kind) in [
            ("infer", ActionKind::Infer),
            ("load", ActionKind::Load),
            ("unload", ActionKind::Unload),
        ] {
            failures_of(worker, (action, kind), &mut family)?;
        }
    }
    Ok(())
}

fn failures_of(
    worker: &Worker,
    (action, kind): (&str, ActionKind),
    family: &mut MetricEncoder<'_>,
) -> fmt::Result {
    let [name, device] = worker.labels();
    for (code, count) in worker.shared.log.counts(kind).1 {
        let labels = [name, device, ("action", action), ("code", code)];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
