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
use prometheus_client::{encoding::text::encode, registry::Registry};
use sextant_rpc::Answer;
use sextant_types::{Code, VariantId};

use self::{
    families::{CodeLabels, Families, Handles, OutcomeLabels, ProblemLabels},
    gauges::{Gauges, gauge},
};
use crate::{ApiState, problem::Problem};

mod families;
mod gauges;

/// The registry and the front end's own metrics.
pub struct Metrics {
    registry: RwLock<Registry>,
    families: Families,
    gauges: Gauges,
    variants: RwLock<HashMap<VariantId, Arc<Handles>>>,
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
        let gauges = Gauges::register(&mut registry);
        Self {
            registry: RwLock::new(registry),
            families,
            gauges,
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
        self.families.in_flight.set(gauge(state.in_flight()));
        self.gauges.look(state.metadata(), state.registry()).await
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
