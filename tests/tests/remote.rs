//! Models of a server that the service starts: they are registered by a manifest, queried like any other, lost and
//! replaced when the server crashes or hangs. Everything else goes on.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, Upload, digits, until};

/// A runtime with models that fail in harmful ways when their first number is negative.
const SCRIPT: &str = "crates/engines/engine-remote/tests/support/faulty.py";

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(SCRIPT)
}

/// A runtime that the test starts and kills, not the service.
struct ForeignRuntime {
    address: SocketAddr,
    process: Child,
}

impl ForeignRuntime {
    /// Starts the runtime on a free port.
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        Self::start_at(address).await
    }

    async fn start_at(address: SocketAddr) -> Self {
        let process = Command::new("python3")
            .arg("-B")
            .arg(script())
            .args(["--end-with-parent", "--port", &address.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let foreign = Self { address, process };
        until("the runtime listens", || async {
            TcpStream::connect(address).ok()
        })
        .await;
        foreign
    }
}

impl Drop for ForeignRuntime {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A service with the digits' models and a runtime `python`.
struct Bed {
    cluster: TestCluster,
    /// A word in the runtime's command line that no other process has.
    mark: String,
}

impl Bed {
    async fn start(set: &[&str]) -> Self {
        let script = script();
        let unique = tempfile::tempdir().expect("a temporary folder");
        let mark = unique.path().display().to_string();
        let words = [
            "python3",
            "-B",
            &script.display().to_string(),
            "--end-with-parent",
            "--port",
            "{port}",
            "--digits",
            &mark,
        ];
        let command = format!("worker.remote.python.command={}", words.join(","));
        Self::with(&command, set, mark).await
    }

    /// A service with a runtime that already runs.
    async fn beside(foreign: &ForeignRuntime) -> Self {
        let url = format!("worker.remote.python.url=http://{}", foreign.address);
        Self::with(&url, &[], String::new()).await
    }

    async fn with(runtime: &str, set: &[&str], mark: String) -> Self {
        let set = [runtime].into_iter().chain(set.iter().copied());
        let settings = Settings {
            set: set.map(str::to_owned).collect(),
            faults: true,
            ..Settings::default()
        };
        let cluster = digits::service(settings).await;
        Self { cluster, mark }
    }

    /// Registers a model of the runtime: it doubles two numbers.
    async fn register(&self, model: &str) -> Value {
        let api = self.cluster.api();
        let application = json!({"name": "doubles", "metric": "mae"});
        api.post("/v1/applications", &application).await.created();
        let record = |at: i32| json!({"inputs": {"input": [at, 1]}, "label": [2 * at, 2]});
        let records: Vec<String> = (0..40).map(|at| record(at).to_string()).collect();
        let upload = Upload {
            application: "doubles",
            name: model,
            model: manifest("python", model),
            validation: records.join("\n").into_bytes(),
            validation_name: "validation.jsonl",
        };
        api.register(upload).await
    }

    /// Ids of the runtime's processes.
    fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").expect("the system lists processes");
        let id = |entry: fs::DirEntry| {
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command);
            let is_service = command.contains("worker.remote");
            let is_ours = command.contains(&self.mark) && !is_service;
            let id = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(id).filter(|_| is_ours)
        };
        entries.flatten().filter_map(id).collect()
    }

    /// The digits' models answer.
    async fn others_answer(&self, api: &Api) {
        let query = json!({"model": "logistic", "inputs": digits::Images::load("test").input(0)});
        api.post("/v1/queries", &query).await.json(200);
    }
}

fn manifest(runtime: &str, model: &str) -> Vec<u8> {
    let manifest = json!({
        "format": "sextant-remote/1", "runtime": runtime, "model": model, "max_batch": 4,
        "weights_bytes": 1000
    });
    manifest.to_string().into_bytes()
}

async fn ask(api: &Api, model: &str, first: f32) -> Answer {
    let input = json!({"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [first, 1]});
    let query = json!({"model": model, "inputs": [input]});
    api.post("/v1/queries", &query).await
}

/// Queries the model until it is loaded, and again while it is not.
async fn doubled(api: &Api, model: &str) -> Value {
    until(&format!("`{model}` answers"), || async {
        let answer = ask(api, model, 21.0).await;
        let outputs = (answer.status == 200).then(|| answer.json(200)["outputs"].clone());
        if outputs.is_none() {
            assert_eq!(answer.status, 503, "{}", answer.text());
        }
        outputs
    })
    .await
}

#[tokio::test]
async fn a_model_of_a_runtime_is_registered_and_asked() {
    let bed = Bed::start(&[]).await;
    let api = bed.cluster.api();
    let job = bed.register("double").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let answer = api.get("/v1/models/double/variants").await.json(200);
    let variants = answer["variants"].as_array().expect("a list");
    let mut names: Vec<&str> = variants
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    names.sort_unstable();
    let expected = ["b1", "b2", "b4"].map(|batch| format!("double-python-fp32-all-t1-{batch}"));
    assert_eq!(names, expected);
    let outputs = doubled(&api, "double").await;
    assert_eq!(outputs[0]["data"], json!([42.0, 2.0]));
    let nobody = Upload {
        application: "doubles",
        name: "nobody",
        model: manifest("nobody", "double"),
        validation: b"{\"inputs\": {\"input\": [1, 1]}, \"label\": [2, 2]}".to_vec(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(nobody).await;
    assert_eq!(job["error"]["code"], "invalid_model", "{job}");
    let strange = Upload {
        application: "doubles",
        name: "strange",
        model: manifest("python", "no-such-model"),
        validation: b"{\"inputs\": {\"input\": [1, 1]}, \"label\": [2, 2]}".to_vec(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(strange).await;
    let text = job["error"].to_string();
    assert!(text.contains("there is no model `no-such-model`"), "{job}");
    bed.others_answer(&api).await;
}

#[tokio::test]
async fn a_crash_costs_its_batch_and_the_next_load_starts_again() {
    let bed = Bed::start(&[]).await;
    let api = bed.cluster.api();
    let job = bed.register("crash").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    doubled(&api, "crash").await;
    let before = bed.processes();
    assert_eq!(before.len(), 1, "one process for the runtime");
    let lost = ask(&api, "crash", -1.0).await.problem(500, "engine_failed");
    let detail = lost["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("signal: 11"), "{detail}");
    bed.others_answer(&api).await;
    assert_eq!(doubled(&api, "crash").await[0]["data"], json!([42.0, 2.0]));
    let after = bed.processes();
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    kill_process(after[0], Signal::KILL).expect("it can be killed");
    let lost = ask(&api, "crash", 1.0).await;
    // The query was refused, or placed again after the instance was loaded again.
    assert!(
        [200, 500, 503].contains(&lost.status.as_u16()),
        "{}",
        lost.text()
    );
    bed.others_answer(&api).await;
    assert_eq!(doubled(&api, "crash").await[0]["data"], json!([42.0, 2.0]));
}

#[tokio::test]
async fn a_runtime_that_is_lost_and_returns_is_used_again() {
    let foreign = ForeignRuntime::start().await;
    let bed = Bed::beside(&foreign).await;
    let api = bed.cluster.api();
    let job = bed.register("double").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    doubled(&api, "double").await;
    let address = foreign.address;
    drop(foreign);
    // However often clients ask, no answer says that the query can never be served.
    let input = json!({"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1, 1]});
    let query = json!({"model": "double", "targets": {"latency_ms": 2000}, "inputs": [input]});
    for _ in 0..5 {
        let answer = api.post("/v1/queries", &query).await;
        if answer.status == 503 {
            let problem: Value = serde_json::from_str(&answer.text()).expect("a problem");
            assert!(problem["retry_after_ms"].is_number(), "{problem}");
        } else {
            assert_eq!(answer.status, 500, "{}", answer.text());
        }
        bed.others_answer(&api).await;
    }
    let _returned = ForeignRuntime::start_at(address).await;
    let outputs = doubled(&api, "double").await;
    assert_eq!(outputs[0]["data"], json!([42.0, 2.0]));
}

#[tokio::test]
async fn a_hang_is_ended_at_its_limit() {
    let mut bed = Bed::start(&["worker.remote.python.request_timeout_ms=5000"]).await;
    let api = bed.cluster.api();
    let job = bed.register("hang").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    doubled(&api, "hang").await;
    let before = bed.processes();
    let lost = ask(&api, "hang", -1.0).await.problem(500, "engine_failed");
    let detail = lost["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("no answer within 5s"), "{detail}");
    bed.others_answer(&api).await;
    assert_eq!(doubled(&api, "hang").await[0]["data"], json!([42.0, 2.0]));
    assert_ne!(bed.processes(), before);
    assert!(bed.cluster.stop().success());
    assert!(
        bed.processes().is_empty(),
        "the runtime outlives the service"
    );
}
