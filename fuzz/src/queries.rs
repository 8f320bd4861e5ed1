//! Queries, through the complete router.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use serde_json::{Value, json};
use sextant_api::{ApiParts, ApiState, Limits, auth, router};
use sextant_metadata::{InProcessRates, InProcessStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::Registry;
use sextant_rpc::{Answer, Dispatch, Publish, PublishError, Query, QueryError, Timings};
use sextant_storage::Storage;
use sextant_types::{ApplicationId, DataType, ModelId, Route, Signature, TensorSpec};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::files;

/// A front end and what it runs on.
struct Front {
    router: Router,
    runtime: Runtime,
    _folder: TempDir,
}

static FRONT: LazyLock<Front> = LazyLock::new(|| {
    let runtime = files::runtime();
    let folder = files::folder();
    let router = runtime.block_on(front(&folder));
    Front {
        router,
        runtime,
        _folder: folder,
    }
});

/// A body of `POST /v1/queries`. What is answered can be asked again, and gives the same answer.
pub fn json_query(bytes: &[u8]) {
    let (status, body) = post("/v1/queries", None, bytes);
    check(status, &body);
    if status != StatusCode::OK {
        return;
    }
    let outputs = outputs(&body);
    let query = json!({"model": "echo", "inputs": outputs}).to_string();
    let (status, again) = post("/v1/queries", None, query.as_bytes());
    assert_eq!(status, StatusCode::OK, "{query}");
    assert_eq!(self::outputs(&again), outputs, "{query}");
}

/// A body of the Open Inference Protocol: two bytes with the length of its JSON part, little-endian, and what
/// follows. A length of 0 stands for a body without tensors behind the JSON part.
pub fn binary_query(bytes: &[u8]) {
    let Some((length, body)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let length = u16::from_le_bytes(*length);
    let length = (length > 0).then_some(length);
    let (status, answer) = post("/v2/models/echo/infer", length, body);
    match answer.iter().position(|byte| *byte == b'{') {
        Some(0) if status == StatusCode::OK => {
            let mut values = serde_json::Deserializer::from_slice(&answer).into_iter::<Value>();
            let head = values.next().expect("a JSON part").expect("JSON");
            let tail = answer.len() - values.byte_offset();
            assert_eq!(announced(&head), tail, "{head}");
        }
        _ => check(status, &answer),
    }
}

/// Bytes behind the JSON part, by its own account.
fn announced(head: &Value) -> usize {
    let sizes = head["outputs"].as_array().expect("outputs").iter();
    let sizes = sizes.filter_map(|output| output["parameters"]["binary_data_size"].as_u64());
    sizes.sum::<u64>() as usize
}

fn outputs(body: &[u8]) -> Value {
    let answer: Value = serde_json::from_slice(body).expect("an answer is JSON");
    answer["outputs"].clone()
}

/// An answer or a refusal that says why, and never a failure of the service.
fn check(status: StatusCode, body: &[u8]) {
    assert!(!status.is_server_error(), "{status}");
    let json: Value = serde_json::from_slice(body).expect("every answer is JSON");
    if !status.is_success() {
        for member in ["code", "detail"] {
            let text = json[member].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{json}");
        }
    }
}

fn post(path: &str, length: Option<u16>, body: &[u8]) -> (StatusCode, Vec<u8>) {
    let front = &*FRONT;
    let mut request = Request::post(path);
    if let Some(length) = length {
        request = request.header("inference-header-content-length", length);
    }
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    front.runtime.block_on(async {
        let Ok(response) = front.router.clone().oneshot(request).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        (status, body.expect("a whole body").into())
    })
}

async fn front(folder: &TempDir) -> Router {
    let registry = Registry::open(folder.path().join("registry.db")).await;
    let registry = registry.expect("a registry");
    let objects = LocalStore::open(folder.path().join("objects"), None).expect("a store");
    let objects: Arc<dyn ObjectStore> = Arc::new(objects);
    let keeps_all = sextant_storage::Config {
        every: None,
        grace: Duration::from_secs(3600),
        keep_ended_jobs: None,
        keep_failed_models: None,
        keep_audit: None,
        feedback_every: Duration::from_secs(60),
        limit_bytes: None,
    };
    let state = ApiState::new(ApiParts {
        dispatcher: Arc::new(Echo),
        publisher: Arc::new(Echo),
        storage: Storage::new(registry.clone(), Arc::clone(&objects), keeps_all),
        registry,
        objects,
        metadata: Arc::new(InProcessStore::new()),
        workers: Vec::new().into_iter().collect(),
        estimate_factor: 1.0,
        limits: Limits::default(),
        auth: auth::Config::default(),
        rates: Arc::new(InProcessRates::new()),
        metrics: sextant_api::Metrics::registry(),
        readiness: Arc::new(|| Ok(())),
        origins: Vec::new(),
        shared_memory: false,
        raw_answers: false,
        logging: None,
        notifier: None,
        python: Arc::new(sextant_api::NoPython::Off),
        examiner: Arc::new(sextant_rpc::NoExaminer),
    });
    state.refresh().await.expect("a registry");
    router(state)
}

/// Answers each query with its own inputs, whomever it addresses.
struct Echo;

#[async_trait]
impl Dispatch for Echo {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        Ok(Answer {
            variant: "echo-1".parse().expect("a name"),
            model: "echo".parse().expect("a name"),
            outputs: query.inputs,
            rows: 1,
            timings: Timings {
                queue_us: 1.0,
                load_us: 0.0,
                compute_us: 2.0,
                total_us: 3.0,
                batch_rows: 1,
            },
            targets_met: true,
            cost_usd: 0.5,
            explanation: None,
        })
    }

    fn signature(&self, _: &Route) -> Result<Signature, QueryError> {
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            data_type: DataType::Fp32,
            shape: vec![None, None],
        };
        Ok(Signature {
            inputs: vec![spec("x")],
            outputs: vec![spec("x")],
            batched: true,
        })
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, _: &Route) -> bool {
        true
    }
}

#[async_trait]
impl Publish for Echo {
    async fn retire_model(&self, _: &ModelId) -> Result<(), PublishError> {
        Ok(())
    }

    async fn show_application(&self, _: &ApplicationId) -> Result<(), PublishError> {
        Ok(())
    }
}
