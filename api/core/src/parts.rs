//! What a front end is made of.

use std::sync::Arc;

use axum::http::HeaderValue;
use sextant_metadata::{MetadataStore, RateStore};
use sextant_objects::ObjectStore;
use sextant_pipeline::Interpreter;
use sextant_registry::Registry;
use sextant_rpc::{DispatcherClient, ExaminerClient, Notify, PublisherClient};
use sextant_storage::Storage;

use crate::{Limits, Workers, auth, logging::Logging};

/// Whether the process can take requests, or why it cannot: a sentence for people.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The clients and stores that the front end works with.
pub struct ApiParts {
    /// Answers queries.
    pub dispatcher: DispatcherClient,
    /// Deletes models.
    pub publisher: PublisherClient,
    /// Applications, models, variants and jobs.
    pub registry: Registry,
    /// Uploaded files.
    pub objects: Arc<dyn ObjectStore>,
    /// Who uses what of these, and what is given back.
    pub storage: Storage,
    /// Instances and workers.
    pub metadata: Arc<dyn MetadataStore>,
    /// The workers that can be asked what they did.
    pub workers: Workers,
    /// How many times as long as where it was registered a variant is expected to take on a type of
    /// device on which it has not been measured.
    pub estimate_factor: f64,
    /// What requests may cost.
    pub limits: Limits,
    /// Who may ask.
    pub auth: auth::Config,
    /// The rate limits and quotas of keys, shared by all front ends.
    pub rates: Arc<dyn RateStore>,
    /// Metrics of the other roles of the process, see [`crate::Metrics::registry`].
    pub metrics: prometheus_client::registry::Registry,
    /// What `/health/ready` asks, besides whether the process is shutting down.
    pub readiness: Readiness,
    /// Origins whose pages may ask with a script, as the configuration names them.
    pub origins: Vec<HeaderValue>,
    /// Whether clients of this machine may register shared memory for their tensors.
    pub shared_memory: bool,
    /// Whether tensors over gRPC are answered in bytes, however they were asked.
    pub raw_answers: bool,
    /// What is logged and how that is changed; `None` where it is not for this front end to say.
    pub logging: Option<Logging>,
    /// Tells webhooks of models that should be trained again; `None` tells nobody.
    pub notifier: Option<Arc<dyn Notify>>,
    /// Calls functions of Python files, for pipelines.
    pub python: Arc<dyn Interpreter>,
    /// Scores pipelines on their validation sets.
    pub examiner: ExaminerClient,
}
