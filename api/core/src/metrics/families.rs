//! The families of the front end's metrics.

use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use sextant_rpc::Answer;
use sextant_types::{ApplicationId, Code};

use super::{recent::RecentMinute, tally::Tally};

pub type Histograms = Family<ModelLabels, Histogram, fn() -> Histogram>;

/// Metrics by label.
pub struct Families {
    pub queries: Family<VariantLabels, Counter>,
    pub failures: Family<CodeLabels, Counter>,
    pub selections: Family<OutcomeLabels, Counter>,
    pub problems: Family<ProblemLabels, Counter>,
    pub duration: Histograms,
    /// Only of queries that waited for a load.
    pub load: Histograms,
    pub queue: Histograms,
    pub compute: Histograms,
    pub rows: Histograms,
    pub requests: Family<RequestLabels, Counter>,
    pub feedback: Family<OutcomeLabels, Counter>,
    pub in_flight: Gauge,
    pub in_flight_of: Family<ApplicationLabels, Gauge>,
}

/// The metrics of one variant, found by one look-up.
pub struct Handles {
    pub application: Option<ApplicationId>,
    labels: VariantLabels,
    /// `selections` with outcome `met`.
    pub met: Counter,
    pub missed: Counter,
    pub queries: Counter,
    pub duration: Histogram,
    pub load: Histogram,
    pub queue: Histogram,
    pub compute: Histogram,
    pub rows: Histogram,
    pub tally: Tally,
    /// The last minute of its application.
    pub recent: Option<Arc<RecentMinute>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VariantLabels {
    pub application: String,
    pub model: String,
    pub variant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ModelLabels {
    pub application: String,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CodeLabels {
    pub application: String,
    pub code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub application: String,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ProblemLabels {
    pub route: String,
    pub code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub route: String,
    pub method: &'static str,
    pub status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApplicationLabels {
    pub application: String,
}

/// The label of an application; empty, which stands for no label, if none was found.
pub fn text(application: Option<&ApplicationId>) -> String {
    application.map(ToString::to_string).unwrap_or_default()
}

// === impl Handles ===

impl Handles {
    /// The model of the variant.
    pub fn model_name(&self) -> &str {
        &self.labels.model
    }

    fn model(&self) -> ModelLabels {
        ModelLabels {
            application: self.labels.application.clone(),
            model: self.labels.model.clone(),
        }
    }
}

// === impl Families ===

impl Families {
    /// Registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(50e-6, 2.0, 18));
        let rows: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 9));
        let families = Self {
            queries: Family::default(),
            failures: Family::default(),
            selections: Family::default(),
            problems: Family::default(),
            duration: Family::new_with_constructor(seconds),
            load: Family::new_with_constructor(seconds),
            queue: Family::new_with_constructor(seconds),
            compute: Family::new_with_constructor(seconds),
            rows: Family::new_with_constructor(rows),
            requests: Family::default(),
            feedback: Family::default(),
            in_flight: Gauge::default(),
            in_flight_of: Family::default(),
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
            "Outcomes of the targets of queries",
            self.selections.clone(),
        );
        registry.register(
            "feedback",
            "Items of feedback, by outcome; the application is known only for items that were kept",
            self.feedback.clone(),
        );
        registry.register("problems", "Problem documents sent", self.problems.clone());
        registry.register(
            "requests",
            "Requests answered, by route, method and status",
            self.requests.clone(),
        );
        registry.register(
            "queries_in_flight",
            "Queries in flight",
            self.in_flight.clone(),
        );
        registry.register(
            "application_queries_in_flight",
            "Queries in flight, by application",
            self.in_flight_of.clone(),
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
                "query_load",
                "Waiting for the load of a variant, for queries that waited for one",
                &self.load,
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

    /// The metrics of the variant that answered.
    pub fn handles(
        &self,
        answer: &Answer,
        (application, recent): (Option<ApplicationId>, Option<Arc<RecentMinute>>),
    ) -> Handles {
        let name = text(application.as_ref());
        let selections = |outcome| {
            self.selections.get_or_create_owned(&OutcomeLabels {
                application: name.clone(),
                outcome,
            })
        };
        let (met, missed) = (selections("met"), selections("missed"));
        let model = ModelLabels {
            application: name.clone(),
            model: answer.model.to_string(),
        };
        let variant = VariantLabels {
            application: name,
            model: answer.model.to_string(),
            variant: answer.variant.to_string(),
        };
        Handles {
            application,
            met,
            missed,
            queries: self.queries.get_or_create_owned(&variant),
            duration: self.duration.get_or_create_owned(&model),
            load: self.load.get_or_create_owned(&model),
            queue: self.queue.get_or_create_owned(&model),
            compute: self.compute.get_or_create_owned(&model),
            rows: self.rows.get_or_create_owned(&model),
            labels: variant,
            tally: Tally::default(),
            recent,
        }
    }

    /// Forgets the series of a variant and of its model.
    pub fn forget(&self, handles: &Handles) {
        self.queries.remove(&handles.labels);
        let model = handles.model();
        let of_time = [&self.duration, &self.load, &self.queue, &self.compute];
        for histograms in of_time.into_iter().chain([&self.rows]) {
            histograms.remove(&model);
        }
    }

    /// Forgets the series of an application.
    pub fn forget_application(&self, application: &str) {
        let application = || application.to_owned();
        for code in Code::ALL {
            let code = code.as_str();
            self.failures.remove(&CodeLabels {
                application: application(),
                code,
            });
            self.selections.remove(&OutcomeLabels {
                application: application(),
                outcome: code,
            });
        }
        for outcome in ["met", "missed"] {
            self.selections.remove(&OutcomeLabels {
                application: application(),
                outcome,
            });
        }
        self.feedback.remove(&OutcomeLabels {
            application: application(),
            outcome: "kept",
        });
    }
}
