//! The parts that a front end is made of.

use std::sync::Arc;

use axum::http::HeaderValue;
use sextant_metadata::{MetadataStore, RateStore};
use sextant_objects::ObjectStore;
use sextant_pipeline::Interpreter;
use sextant_registry::Registry;
use sextant_rpc::{DispatcherClient, ExaminerClient, Notify, PublisherClient};
use sextant_storage::Storage;

use crate::{Limits, Workers, auth, logging::Logging};

/// Whether the process can accept requests; if not, why: a sentence for people.
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
    /// Reports what uses the registry and the artefact store, and releases what nothing uses.
    pub storage: Storage,
    /// Instances and workers.
    pub metadata: Arc<dyn MetadataStore>,
    /// The workers that the front end can ask for statistics.
    pub workers: Workers,
    /// Expected ratio of a variant's time on a type of device on which it has not been measured to
    /// its time on the device of its registration.
    pub estimate_factor: f64,
    /// The limits of requests.
    pub limits: Limits,
    /// The configuration of keys.
    pub auth: auth::Config,
    /// The rate limits and quotas of keys, shared by all front ends.
    pub rates: Arc<dyn RateStore>,
    /// Metrics of the other roles of the process, see [`crate::Metrics::registry`].
    pub metrics: prometheus_client::registry::Registry,
    /// The check of `/health/ready`, in addition to whether the process is shutting down.
    pub readiness: Readiness,
    /// Origins whose scripts may send requests, as the configuration names them.
    pub origins: Vec<HeaderValue>,
    /// Whether clients of this machine may register shared memory for their tensors.
    pub shared_memory: bool,
    /// Whether gRPC answers always carry tensors in `raw_output_contents`.
    pub raw_answers: bool,
    /// The log settings and how to change them; `None` if this front end does not decide on the
    /// log.
    pub logging: Option<Logging>,
    /// Notifies webhooks of models that should be trained again; `None` notifies nobody.
    pub notifier: Option<Arc<dyn Notify>>,
    /// Calls functions of Python files for pipelines.
    pub python: Arc<dyn Interpreter>,
    /// Scores pipelines on their validation sets.
    pub examiner: ExaminerClient,
}
