//! `/metrics`: the metrics of the process, in base units, as Prometheus or OpenMetrics text.
//!
//! Labels never have a name that a client made up: models and variants become labels only after they have answered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use parking_lot::RwLock;
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    metrics::info::Info,
    registry::Registry,
};
use sextant_rpc::Answer;
use sextant_types::{ApplicationId, Code, Route, VariantId};

pub use self::steps::Steps;
use self::{
    families::{
        ApplicationLabels, CodeLabels, Families, Handles, OutcomeLabels, ProblemLabels,
        RequestLabels, text,
    },
    gauges::{Gauges, Stores, gauge},
};
use crate::{ApiState, directory::Directory, problem::Problem};

mod families;
mod gauges;
mod process;
mod recent;
mod steps;
mod tally;

pub use recent::{Counts, Split};
pub use tally::{SizeTotals, Totals};

use recent::RecentMinutes;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The registry of the process and the front end's own metrics.
pub struct Metrics {
    registry: Registry,
    families: Families,
    gauges: Gauges,
    recents: RecentMinutes,
    variants: RwLock<HashMap<VariantId, Arc<Handles>>>,
    /// Queries that failed, by route; only routes that exist.
    failed: RwLock<HashMap<Route, FailureStats>>,
}

/// Queries that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureStats {
    /// Number of queries.
    pub queries: u64,
    /// Sum of the times from arrival to refusal.
    pub total_ns: u64,
}

/// The answers of one variant or of several together.
#[derive(Debug, Default)]
pub struct AnswerStats {
    /// Sums over all batches.
    pub totals: Totals,
    /// Sums by the rows of the batches.
    pub sizes: BTreeMap<usize, SizeTotals>,
}

/// Returns all metrics as Prometheus text, or as OpenMetrics if `Accept` names `application/openmetrics-text`.
#[utoipa::path(get, operation_id = "metrics", path = "/metrics", tag = "health",
    responses((status = 200, description = "Prometheus text, or OpenMetrics if the client accepts that",
        body = String, content_type = "text/plain")))]
pub async fn scrape(
    State(state): State<ApiState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let metrics = state.metrics();
    metrics.look(&state).await;
    render(&metrics.registry, &headers)
}

/// All metrics of a registry, as a response in the format that the headers accept.
pub fn render(registry: &Registry, headers: &HeaderMap) -> Result<Response, Problem> {
    let mut text = String::new();
    let encoded = encode_registry(&mut text, registry)
        .and_then(|()| encode_registry(&mut text, &process::registry()))
        .and_then(|()| encode_eof(&mut text));
    encoded.map_err(|error| Problem::internal("/metrics", &error))?;
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let is_open = accepted
        .into_iter()
        .any(|value| value.contains("application/openmetrics-text"));
    let (text, kind) = match is_open {
        true => (text, OPENMETRICS),
        false => (prometheus(&text), PROMETHEUS),
    };
    let mut response = text.into_response();
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The name of a method; clients may make up others.
fn known(method: &Method) -> &'static str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    const NAMES: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let at = KNOWN.iter().position(|one| one == method);
    at.map_or("other", |at| NAMES[at])
}

/// Converts OpenMetrics to the older format: a counter's family has the name of its samples, and there are no units and
/// no end.
fn prometheus(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // The line with the type, which names the family, follows the help.
            (Some("#"), Some("HELP"), Some(_), said) => help = Some(said.unwrap_or_default()),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(said) = help.take() {
                    text.extend(["# HELP ", name, suffix, " ", said, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            (Some("#"), ..) => {}
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

// === impl AnswerStats ===

impl AnswerStats {
    /// The sum of both.
    pub fn plus(mut self, other: Self) -> Self {
        self.totals = self.totals.plus(other.totals);
        for (rows, of) in other.sizes {
            let sum = self.sizes.entry(rows).or_default();
            sum.batches += of.batches;
            sum.compute_ns += of.compute_ns;
        }
        self
    }
}

// === impl Metrics ===

impl Metrics {
    /// A registry for the metrics of all roles of a process; names get the prefix `sextant_`. It has the version as a
    /// metric.
    pub fn registry() -> Registry {
        let mut registry = Registry::with_prefix("sextant");
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", build);
        registry
    }

    /// Adds the front end's metrics to those of the other roles of its process.
    pub fn new(mut registry: Registry) -> Self {
        let families = Families::register(&mut registry);
        let gauges = Gauges::register(&mut registry);
        Self {
            registry,
            families,
            gauges,
            recents: RecentMinutes::new(),
            variants: RwLock::default(),
            failed: RwLock::default(),
        }
    }

    /// Counts an answer; `elapsed` is from the last byte of the request to the written answer. `application` returns
    /// the application, if known.
    pub(crate) fn query_answered(
        &self,
        answer: &Answer,
        elapsed: Duration,
        application: impl FnOnce() -> Option<ApplicationId>,
    ) {
        let handles = self.handles(answer, application);
        let seconds = |microseconds: f64| microseconds / 1e6;
        handles.queries.inc();
        handles.tally.count(answer, elapsed);
        if let Some(recent) = &handles.recent {
            self.recents.answered(recent, answer, elapsed);
        }
        handles.duration.observe(elapsed.as_secs_f64());
        if answer.timings.load_us > 0.0 {
            handles.load.observe(seconds(answer.timings.load_us));
        }
        handles.queue.observe(seconds(answer.timings.queue_us));
        handles.compute.observe(seconds(answer.timings.compute_us));
        handles.rows.observe(f64::from(answer.timings.batch_rows));
        if answer.targets_met {
            handles.met.inc();
        } else {
            handles.missed.inc();
        }
    }

    /// The application of a variant that has answered.
    pub(crate) fn application_of(&self, variant: &VariantId) -> Option<ApplicationId> {
        let known = self.variants.read();
        known.get(variant)?.application.clone()
    }

    /// The answers of each variant that has answered anything, all of them or those of a route: the variant, its
    /// application, and its sums.
    pub fn totals(
        &self,
        of: Option<&Route>,
    ) -> Vec<(VariantId, Option<ApplicationId>, AnswerStats)> {
        let known = self.variants.read();
        let wanted = known.iter().filter(|(id, handles)| match of {
            None => true,
            Some(Route::Application(wanted)) => handles.application.as_ref() == Some(wanted),
            Some(Route::Model(wanted)) => handles.model_name() == wanted.as_str(),
            Some(Route::Variant(wanted)) => *id == wanted,
        });
        let totals = wanted.map(|(id, handles)| {
            let application = handles.application.clone();
            let answered = AnswerStats {
                totals: handles.tally.totals(),
                sizes: handles.tally.sizes().collect(),
            };
            (id.clone(), application, answered)
        });
        totals.collect()
    }

    /// Counts of the queries of an application over the last minute, and the seconds that they cover.
    pub fn recent(&self, application: &ApplicationId) -> (Counts, f64) {
        self.recents.look(application)
    }

    /// Failed queries to a route.
    pub fn failed(&self, route: &Route) -> FailureStats {
        self.failed.read().get(route).copied().unwrap_or_default()
    }

    /// Counts a query that was refused or failed after `elapsed`.
    pub(crate) fn query_failed(
        &self,
        route: Option<&Route>,
        application: Option<&ApplicationId>,
        (code, elapsed): (Code, Duration),
    ) {
        // A name that a client made up belongs to no application.
        if let Some(route) = route.filter(|_| application.is_some()) {
            let mut failed = self.failed.write();
            let of = failed.entry(route.clone()).or_default();
            of.queries += 1;
            of.total_ns = of.total_ns.saturating_add(elapsed.as_nanos() as u64);
        }
        if let Some(application) = application {
            self.recents.refused(application, code);
        }
        let application = text(application);
        let labels = CodeLabels {
            application: application.clone(),
            code: code.as_str(),
        };
        self.families.failures.get_or_create(&labels).inc();
        let selection = matches!(
            code,
            Code::TargetInfeasible | Code::Overloaded | Code::Warming | Code::DeadlineExceeded
        );
        if selection {
            let outcome = code.as_str();
            let labels = OutcomeLabels {
                application,
                outcome,
            };
            self.families.selections.get_or_create(&labels).inc();
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

    /// Counts items of feedback: the applications of the rows that were kept, the number of repeated items, and that of
    /// refused items.
    pub fn feedback(&self, (kept, repeated, refused): &(Vec<&ApplicationId>, usize, usize)) {
        let mut by_application: BTreeMap<&ApplicationId, u64> = BTreeMap::new();
        for application in kept {
            *by_application.entry(application).or_default() += 1;
        }
        let kept = by_application.into_iter();
        let kept = kept.map(|(application, rows)| (application.to_string(), "kept", rows));
        let others = [("repeated", *repeated), ("refused", *refused)];
        let others = others.map(|(outcome, items)| (String::new(), outcome, items as u64));
        for (application, outcome, count) in kept.chain(others) {
            let labels = OutcomeLabels {
                application,
                outcome,
            };
            self.families.feedback.get_or_create(&labels).inc_by(count);
        }
    }

    /// Counts a request that was answered; `route` is a pattern, never a path.
    pub fn request(&self, route: &str, method: &Method, status: StatusCode) {
        let labels = RequestLabels {
            route: route.to_owned(),
            method: known(method),
            status: status.as_u16(),
        };
        self.families.requests.get_or_create(&labels).inc();
    }

    /// Forgets the series of models and applications that have been deleted: those of variants that have
    /// answered and whose model is not in `now`, and those of `applications`.
    pub(crate) fn forget_deleted(&self, applications: &[ApplicationId], now: &Directory) {
        for application in applications {
            self.families.forget_application(application.as_str());
            self.recents.forget(application);
        }
        let mut known = self.variants.write();
        known.retain(|_, handles| {
            let stays = now.has_model(handles.model_name());
            if !stays {
                self.families.forget(handles);
            }
            stays
        });
        let mut failed = self.failed.write();
        failed.retain(|route, _| match route {
            Route::Variant(variant) => known.contains_key(variant),
            route => now.found(route).is_some(),
        });
    }

    /// Sets the gauges from the stores.
    async fn look(&self, state: &ApiState) {
        self.families.in_flight.set(gauge(state.in_flight()));
        self.families.in_flight_of.clear();
        for (application, count) in state.in_flight_of() {
            let application = text(application.as_ref());
            let labels = ApplicationLabels { application };
            self.families
                .in_flight_of
                .get_or_create(&labels)
                .set(gauge(count));
        }
        let stores = Stores {
            metadata: state.metadata(),
            registry: state.registry(),
            objects: state.objects().as_ref(),
        };
        self.gauges.look(stores).await;
    }

    fn handles(
        &self,
        answer: &Answer,
        application: impl FnOnce() -> Option<ApplicationId>,
    ) -> Arc<Handles> {
        let known = self.variants.read();
        if let Some(handles) = known.get(&answer.variant) {
            return Arc::clone(handles);
        }
        drop(known);
        let application = application();
        let recent = application
            .as_ref()
            .map(|application| self.recents.of(application));
        let handles = Arc::new(self.families.handles(answer, (application, recent)));
        if handles.application.is_none() {
            // Not kept: the application may be known the next time.
            return handles;
        }
        let mut known = self.variants.write();
        Arc::clone(known.entry(answer.variant.clone()).or_insert(handles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let open = "# HELP sextant_queries Queries.\n# TYPE sextant_queries counter\n\
            sextant_queries_total{a=\"b c\"} 3\n# HELP sextant_wait_seconds Time waited.\n\
            # TYPE sextant_wait_seconds gauge\n# UNIT sextant_wait_seconds seconds\n\
            sextant_wait_seconds 0.5\n# EOF\n";
        let wanted = "# HELP sextant_queries_total Queries.\n\
            # TYPE sextant_queries_total counter\nsextant_queries_total{a=\"b c\"} 3\n\
            # HELP sextant_wait_seconds Time waited.\n# TYPE sextant_wait_seconds gauge\n\
            sextant_wait_seconds 0.5\n";
        assert_eq!(prometheus(open), wanted);
    }
}
