//! The metrics of a dispatcher.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        gauge::ConstGauge,
    },
    registry::{Registry, Unit},
};

use sextant_answers::CacheFigures;
use sextant_types::{ApplicationId, Variant};

use crate::{Dispatcher, agreement::ComparisonCounts, costs::Tally, demand::Totals};

/// What was sent to workers since the start.
#[derive(Default)]
pub(crate) struct SendCounters {
    pub(crate) batches: Counter,
    pub(crate) rows: Counter,
    loads: Mutex<BTreeMap<ApplicationId, Loads>>,
    pub(crate) unloads: Counter,
    pub(crate) unload_failures: Counter,
    pub(crate) repins: Counter,
    pub(crate) relocations: Counter,
}

/// LOADs of an application's variants.
#[derive(Debug, Default, Clone, Copy)]
struct Loads {
    ordered: u64,
    failed: u64,
}

/// Collects the metrics of a dispatcher when they are read.
struct Look(Weak<Dispatcher>);

/// A name, and a number that each application has.
type OfApplication = fn(&Totals) -> u64;

const BY_APPLICATION: [(&str, &str, OfApplication); 3] = [
    (
        "queries_offered",
        "Online queries that have ended, with any outcome",
        Totals::offered,
    ),
    (
        "queries_answered",
        "Online queries answered in time",
        |totals| totals.answered,
    ),
    (
        "queries_late",
        "Online queries answered too late",
        |totals| totals.late,
    ),
];

/// A name, and an amount that each variant has.
type OfPayer = fn(&Tally) -> f64;

const BY_PAYER: [(&str, &str, OfPayer); 3] = [
    (
        "cost_usd",
        "Price of the device time of a variant's batches, US dollars",
        |tally| tally.usd,
    ),
    (
        "offline_cost_usd",
        "Part of cost_usd that the rows of offline jobs have cost, US dollars",
        |tally| tally.offline_usd,
    ),
    (
        "idle_usd",
        "Price of idle time of the devices on which a variant is loaded, by its share of the memory, US dollars",
        |tally| tally.idle_usd,
    ),
];

impl Dispatcher {
    /// Registers the dispatcher's metrics under the prefix `dispatcher_`. They end with the
    /// dispatcher.
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("dispatcher");
        self.driver.sent().register(registry);
        registry.register_collector(Box::new(Look(Arc::downgrade(self))));
    }
}

// === impl SendCounters ===

impl SendCounters {
    fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("batches", "Batches sent to workers", &self.batches),
            ("rows", "Rows in the batches sent to workers", &self.rows),
            ("unloads", "UNLOADs ordered", &self.unloads),
            (
                "unload_failures",
                "UNLOADs that failed",
                &self.unload_failures,
            ),
            (
                "repins",
                "Times that a worker was told to move to other cores because something slowed it down",
                &self.repins,
            ),
            (
                "relocations",
                "Variants that began to move to another worker",
                &self.relocations,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    /// A LOAD of a variant of this application was ordered.
    pub(crate) fn load_ordered(&self, application: &ApplicationId) {
        self.loads
            .lock()
            .entry(application.clone())
            .or_default()
            .ordered += 1;
    }

    /// A LOAD of a variant of this application failed.
    pub(crate) fn load_failed(&self, application: &ApplicationId) {
        self.loads
            .lock()
            .entry(application.clone())
            .or_default()
            .failed += 1;
    }

    /// The counts of the applications that still exist.
    fn loads(&self, is_there: impl Fn(&ApplicationId) -> bool) -> BTreeMap<ApplicationId, Loads> {
        let mut loads = self.loads.lock();
        loads.retain(|application, _| is_there(application));
        loads.clone()
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
        let Some(dispatcher) = self.0.upgrade() else {
            return Ok(());
        };
        now(&dispatcher, &mut encoder)?;
        costs(&dispatcher, &mut encoder)?;
        loads(&dispatcher, &mut encoder)?;
        agreement(&dispatcher, &mut encoder)?;
        caches(&dispatcher, &mut encoder)?;
        queries(&dispatcher, &mut encoder)
    }
}

/// The current state.
fn now(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let snapshot = dispatcher.snapshot.load();
    let loaded = snapshot.all().filter(|known| !known.workers.is_empty());
    let loaded: Vec<_> = loaded.map(|known| known.ordinal).collect();
    let gauges = dispatcher.driver.gauges();
    let pools: BTreeSet<_> = loaded.iter().flat_map(|at| gauges.pools_of(*at)).collect();
    for (name, help, value) in [
        (
            "leading",
            "Whether this dispatcher leads: 1 or 0",
            f64::from(u8::from(dispatcher.is_leading())),
        ),
        (
            "waiting_queries",
            "Queries that wait for a batch or for a load",
            dispatcher.waiting() as f64,
        ),
        (
            "loaded_variants",
            "Variants that are loaded on at least one worker",
            loaded.len() as f64,
        ),
        (
            "pools",
            "Pools: groups of like workers that serve the same variants",
            pools.len() as f64,
        ),
        (
            "utilization_ratio",
            "Share of the workers' time that online queries took recently, 0 to 1",
            dispatcher.online.utilization(),
        ),
    ] {
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)?;
    }
    Ok(())
}

/// The device time and cost of each variant's batches.
fn costs(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let snapshot = dispatcher.snapshot.load();
    let gauges = dispatcher.driver.gauges();
    let ran = snapshot.all().map(|known| {
        let run = Duration::from_nanos(gauges.ran(known.ordinal));
        (&known.variant, run.as_secs_f64())
    });
    let ran: Vec<_> = ran.filter(|(_, seconds)| *seconds > 0.0).collect();
    let labels = |variant: &Variant| {
        [
            ("application", variant.application.to_string()),
            ("variant", variant.id.to_string()),
        ]
    };
    let (unit, kind) = (Some(&Unit::Seconds), MetricType::Counter);
    let help = "Time that the batches of a variant have run";
    let mut family = encoder.encode_descriptor("run", help, unit, kind)?;
    for (variant, seconds) in &ran {
        let labels = labels(variant);
        ConstCounter::new(*seconds).encode(family.encode_family(&labels)?)?;
    }
    // The series of a deleted variant end with it.
    let costs = dispatcher.driver.costs();
    costs.forget_deleted(|variant| snapshot.variant(variant).is_some());
    let (sums, unattributed_usd) = costs.ever();
    for (name, help, of) in BY_PAYER {
        let mut family = counters(encoder, name, help)?;
        for ((application, variant), tally) in &sums {
            let labels = [("application", &**application), ("variant", &**variant)];
            ConstCounter::new(of(tally)).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Price of idle time of devices with nothing loaded, US dollars";
    let unattributed = counters(encoder, "unattributed_usd", help)?;
    ConstCounter::new(unattributed_usd).encode(unattributed)
}

/// A name, and a number of each variant's comparisons.
type OfCompared = fn(&ComparisonCounts) -> u64;

const COMPARED: [(&str, &str, OfCompared); 5] = [
    (
        "agreement_rows",
        "Rows of queries that were answered once more by the uploaded file, in single precision",
        |of| of.rows,
    ),
    (
        "agreement_agreeing_rows",
        "Rows of agreement_rows in which both answers agree",
        |of| of.agreeing,
    ),
    (
        "agreement_passed_over",
        "Queries drawn and not compared: nothing to compare with was loaded on a quiet worker, or too many waited",
        |of| of.passed_over,
    ),
    (
        "company_queries",
        "Queries that shared a batch and were run once more alone",
        |of| of.alone,
    ),
    (
        "company_differing_queries",
        "Queries of company_queries whose answer differed from the answer alone",
        |of| of.differing,
    ),
];

/// How often answers agree with the uploaded file's.
fn agreement(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let snapshot = dispatcher.snapshot.load();
    let compared = dispatcher
        .agreements
        .compared(|variant| snapshot.variant(variant).is_some());
    for (name, help, of) in COMPARED {
        let mut family = counters(encoder, name, help)?;
        for (variant, of_variant) in &compared {
            let known = snapshot.variant(variant);
            let application = known.map(|it| it.variant.application.to_string());
            let labels = [
                ("application", application.unwrap_or_default()),
                ("variant", variant.to_string()),
            ];
            ConstCounter::new(of(of_variant)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// The size of the caches, and what they save.
fn caches(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let caches = dispatcher.caches.figures();
    type Read = fn(&CacheFigures) -> u64;
    let kinds: [(&str, &str, Read); 2] = [
        (
            "cache_hits",
            "Queries answered from the cache of their application, on no device",
            |of| of.hits,
        ),
        (
            "cache_misses",
            "Queries of applications with a cache that ran",
            |of| of.misses,
        ),
    ];
    for (name, help, of) in kinds {
        let mut family = counters(encoder, name, help)?;
        for (application, figures) in &caches {
            let labels = [("application", application.as_str())];
            ConstCounter::new(of(figures)).encode(family.encode_family(&labels)?)?;
        }
    }
    let (help, unit) = ("Bytes of the answers that are kept", Some(&Unit::Bytes));
    let mut family = encoder.encode_descriptor("cache", help, unit, MetricType::Gauge)?;
    for (application, figures) in &caches {
        let labels = [("application", application.as_str())];
        ConstGauge::new(figures.bytes as f64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A name, and a number of each application's loads.
type OfLoads = fn(&Loads) -> u64;

const BY_LOADS: [(&str, &str, OfLoads); 2] = [
    ("loads", "LOADs ordered", |of| of.ordered),
    ("load_failures", "LOADs that failed", |of| of.failed),
];

/// What was loaded for each application.
fn loads(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let snapshot = dispatcher.snapshot.load();
    let sent = dispatcher.driver.sent();
    let loads = sent.loads(|application| snapshot.application(application).is_some());
    for (name, help, of) in BY_LOADS {
        let mut family = counters(encoder, name, help)?;
        for (application, loads) in &loads {
            let labels = [("application", application.as_str())];
            ConstCounter::new(of(loads)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// How queries have ended.
fn queries(dispatcher: &Dispatcher, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    // The series of a deleted application end with its last model.
    let snapshot = dispatcher.snapshot.load();
    let counts = &dispatcher.counts;
    counts.forget_deleted(|application| snapshot.application(application).is_some());
    let totals = counts.totals();
    for (name, help, of) in BY_APPLICATION {
        let mut family = counters(encoder, name, help)?;
        for (application, totals) in &totals {
            let labels = [("application", application.as_str())];
            ConstCounter::new(of(totals)).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Online queries refused or failed, by code";
    let mut family = counters(encoder, "query_refusals", help)?;
    for (application, totals) in &totals {
        for (code, count) in &totals.refused {
            let labels = [
                ("application", application.as_str()),
                ("code", code.as_str()),
            ];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Total time that online queries have waited in queues";
    let unit = Some(&Unit::Seconds);
    let kind = MetricType::Counter;
    let mut family = encoder.encode_descriptor("query_waiting", help, unit, kind)?;
    for (application, totals) in &totals {
        let labels = [("application", application.as_str())];
        let seconds = Duration::from_micros(totals.queueing_us).as_secs_f64();
        ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
    }
    let help =
        "Online queries that the record of demand misses, because there were too many combinations";
    let uncounted = counters(encoder, "uncounted_queries", help)?;
    ConstCounter::new(dispatcher.counts.uncounted()).encode(uncounted)
}

fn counters<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}
