//! `/metrics`: what happened, in base units, as OpenMetrics text.
//!
//! Labels never carry a name that a client made up: models and variants are labels only once
//! they have answered.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use sextant_metadata::{Instance, InstanceState};
use sextant_registry::{JobFilter, JobKind, JobState};
use sextant_rpc::Answer;
use sextant_types::{Code, VariantId};

use crate::{ApiState, problem::Problem};

/// Unfinished jobs are counted up to this many in each state.
const MOST_JOBS: u32 = 1000;

/// The registry and the front end's own metrics.
pub struct Metrics {
    registry: RwLock<Registry>,
    families: Families,
    variants: RwLock<HashMap<VariantId, Arc<Handles>>>,
}

type Histograms = Family<ModelLabels, Histogram, fn() -> Histogram>;

struct Families {
    queries: Family<VariantLabels, Counter>,
    failures: Family<CodeLabels, Counter>,
    selections: Family<OutcomeLabels, Counter>,
    /// `selections` with outcome `met`.
    met: Counter,
    problems: Family<ProblemLabels, Counter>,
    duration: Histograms,
    queue: Histograms,
    compute: Histograms,
    rows: Histograms,
    in_flight: Gauge,
    gauges: Gauges,
}

/// Set from the stores at each scrape.
struct Gauges {
    instances: Family<StateLabels, Gauge>,
    jobs: Family<JobLabels, Gauge>,
    workers: Gauge,
    variants: Gauge,
}

/// The metrics of one variant, found by one look-up.
struct Handles {
    queries: Counter,
    duration: Histogram,
    queue: Histogram,
    compute: Histogram,
    rows: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VariantLabels {
    model: String,
    variant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabels {
    route: String,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    kind: &'static str,
    state: &'static str,
}

/// All metrics, OpenMetrics text.
#[utoipa::path(get, operation_id = "metrics", path = "/metrics", tag = "health",
    responses((status = 200, description = "OpenMetrics text", body = String,
        content_type = "application/openmetrics-text")))]
pub async fn scrape(State(state): State<ApiState>) -> Result<Response, Problem> {
    let metrics = state.metrics();
    metrics.look(&state).await?;
    let text = metrics
        .render()
        .map_err(|error| Problem::internal("/metrics", &error))?;
    let mut response = text.into_response();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers the front end's metrics under `sextant_`.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("sextant");
        let families = Families::register(&mut registry);
        Self {
            registry: RwLock::new(registry),
            families,
            variants: RwLock::default(),
        }
    }

    /// Adds the metrics of another role; names get the prefix `sextant_`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts an answer; `elapsed` is from the last byte of the request to the written answer.
    pub fn query_answered(&self, answer: &Answer, elapsed: Duration) {
        let handles = self.handles(answer);
        let seconds = |microseconds: f64| microseconds / 1e6;
        handles.queries.inc();
        handles.duration.observe(elapsed.as_secs_f64());
        handles.queue.observe(seconds(answer.timings.queue_us));
        handles.compute.observe(seconds(answer.timings.compute_us));
        handles.rows.observe(f64::from(answer.timings.batch_rows));
        if answer.targets_met {
            self.families.met.inc();
        } else {
            self.selected("missed");
        }
    }

    /// Counts a query that was refused or failed.
    pub fn query_failed(&self, code: Code) {
        let labels = CodeLabels {
            code: code.as_str(),
        };
        self.families.failures.get_or_create(&labels).inc();
        let selection = matches!(
            code,
            Code::TargetInfeasible | Code::Overloaded | Code::Warming | Code::DeadlineExceeded
        );
        if selection {
            self.selected(code.as_str());
        }
    }

    /// Counts a problem document; `route` is a pattern, never a path.
    pub fn problem(&self, route: &str, code: Code) {
        let labels = ProblemLabels {
            route: route.to_owned(),
            code: code.as_str(),
        };
        self.families.problems.get_or_create(&labels).inc();
    }

    fn selected(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.families.selections.get_or_create(&labels).inc();
    }

    /// Sets the gauges from the stores.
    async fn look(&self, state: &ApiState) -> Result<(), Problem> {
        let snapshot = state.metadata().snapshot().await?;
        self.families.in_flight.set(gauge(state.in_flight()));
        let gauges = &self.families.gauges;
        gauges.workers.set(gauge(snapshot.workers.len()));
        gauges.variants.set(gauge(snapshot.variants.len()));
        for instance_state in InstanceState::ALL {
            let of_state = |instance: &&Instance| instance.state == instance_state;
            let count = snapshot.instances.iter().filter(of_state).count();
            let labels = StateLabels {
                state: instance_state.as_str(),
            };
            gauges.instances.get_or_create(&labels).set(gauge(count));
        }
        gauges.look_at_jobs(state.registry()).await
    }

    fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(
            &mut text,
            &self.registry.read().unwrap_or_else(PoisonError::into_inner),
        )?;
        Ok(text)
    }

    fn handles(&self, answer: &Answer) -> Arc<Handles> {
        let known = self.variants.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = known.get(&answer.variant) {
            return Arc::clone(handles);
        }
        drop(known);
        let handles = Arc::new(self.families.handles(answer));
        let mut known = self
            .variants
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(answer.variant.clone()).or_insert(handles))
    }
}

// === impl Families ===

impl Families {
    fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(50e-6, 2.0, 18));
        let rows: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 9));
        let selections: Family<OutcomeLabels, Counter> = Family::default();
        let met = selections.get_or_create_owned(&OutcomeLabels { outcome: "met" });
        let families = Self {
            queries: Family::default(),
            failures: Family::default(),
            selections,
            met,
            problems: Family::default(),
            duration: Family::new_with_constructor(seconds),
            queue: Family::new_with_constructor(seconds),
            compute: Family::new_with_constructor(seconds),
            rows: Family::new_with_constructor(rows),
            in_flight: Gauge::default(),
            gauges: Gauges::register(registry),
        };
        families.describe(registry);
        families
    }

    fn describe(&self, registry: &mut Registry) {
        let clone = |histograms: &Histograms| histograms.clone();
        registry.register("queries", "Queries answered", self.queries.clone());
        registry.register(
            "query_failures",
            "Queries not answered, by code",
            self.failures.clone(),
        );
        registry.register(
            "selections",
            "What became of the targets of queries",
            self.selections.clone(),
        );
        registry.register("problems", "Problem documents sent", self.problems.clone());
        registry.register(
            "queries_in_flight",
            "Queries in flight",
            self.in_flight.clone(),
        );
        registry.register(
            "batch_rows",
            "Rows in the batch of a query",
            clone(&self.rows),
        );
        for (name, help, histograms) in [
            (
                "query_duration",
                "From the last byte of a request to its answer",
                &self.duration,
            ),
            (
                "query_queue",
                "Waiting for a batch and a device",
                &self.queue,
            ),
            (
                "query_compute",
                "Running the batch of a query",
                &self.compute,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Seconds, clone(histograms));
        }
    }

    fn handles(&self, answer: &Answer) -> Handles {
        let model = ModelLabels {
            model: answer.model.to_string(),
        };
        let variant = VariantLabels {
            model: answer.model.to_string(),
            variant: answer.variant.to_string(),
        };
        Handles {
            queries: self.queries.get_or_create_owned(&variant),
            duration: self.duration.get_or_create_owned(&model),
            queue: self.queue.get_or_create_owned(&model),
            compute: self.compute.get_or_create_owned(&model),
            rows: self.rows.get_or_create_owned(&model),
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

// === impl Gauges ===

impl Gauges {
    fn register(registry: &mut Registry) -> Self {
        let gauges = Self {
            instances: Family::default(),
            jobs: Family::default(),
            workers: Gauge::default(),
            variants: Gauge::default(),
        };
        registry.register("instances", "Instances, by state", gauges.instances.clone());
        registry.register(
            "jobs",
            "Unfinished jobs, by kind and state",
            gauges.jobs.clone(),
        );
        registry.register(
            "workers",
            "Workers that hold a lease",
            gauges.workers.clone(),
        );
        registry.register("variants", "Published variants", gauges.variants.clone());
        gauges
    }

    async fn look_at_jobs(&self, registry: &sextant_registry::Registry) -> Result<(), Problem> {
        for state in JobState::ALL.into_iter().filter(|state| !state.is_final()) {
            let filter = JobFilter {
                state: Some(state),
                limit: Some(MOST_JOBS),
                ..JobFilter::default()
            };
            let jobs = registry.jobs(&filter).await?;
            for kind in [JobKind::Register, JobKind::Offline] {
                let count = jobs.iter().filter(|job| job.kind == kind).count();
                let (kind, state) = (kind.as_str(), state.as_str());
                let labels = JobLabels { kind, state };
                self.jobs.get_or_create(&labels).set(gauge(count));
            }
        }
        Ok(())
    }
}
