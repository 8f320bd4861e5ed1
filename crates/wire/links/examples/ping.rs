//! Measures what a message costs: pairs of messages between two halves of a link over the loopback interface, one at a
//! time and many at once, and tensors.
//!
//! ```text
//! cargo run --release -p sextant-links --example ping
//! ```
//!
//! Arguments choose among `pairs`, `crowd`, `flood` and `tensors`; by default all are measured. Prints one JSON
//! document. `pair_p50_us`, `pair_p99_us` and `pair_cpu_us` are one message in each direction, one pair at a time, as
//! for a lone query. `crowd_cpu_us_per_pair` is with many tasks that each wait for their own answer, as in a busy front
//! end. `messages_per_s` and `cpu_us_per_message` count both directions, with `in_flight` pairs at a time from one
//! task.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_links::{
    grpc::{
        Caller, ConnectorConfig, Error, Fence, GrpcConfig, GrpcConnector, GrpcServer, Hello,
        Protocol,
    },
    link::{Clock, Options, RemoteWorker},
    mailbox::{Mailbox, MailboxOptions},
};
use sextant_metadata::{Candidate, InProcessStore, MetadataStore};
use sextant_rpc::{
    BatchResult, BatchTimings, Infer, InferOutcome, Load, LoadTimings, Pages, Part, VariantUsage,
    Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{DataType, NamedTensor, Tensor, VariantId, WorkerId};
use tokio::sync::{mpsc, watch};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PAIRS: usize = 20_000;
const FLOOD: usize = 500_000;
const IN_FLIGHT: usize = 256;
const CROWD: usize = 32;
const TENSORS: usize = 64;
const TENSOR_BYTES: usize = 16 << 20;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // This runs on a task of the runtime, like the work of a role.
    let figures = tokio::spawn(measure()).await??;
    writeln!(std::io::stdout(), "{figures:#}")?;
    Ok(())
}

async fn measure() -> Result<serde_json::Value, Failure> {
    let phases: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |phase: &str| phases.is_empty() || phases.iter().any(|it| it == phase);
    let worker = connect().await?;
    let variant = VariantId::new("m")?;
    let mut figures = serde_json::Map::new();
    let mut note = |name: &str, value: f64| figures.insert(name.to_owned(), value.into());
    if wanted("pairs") {
        let cpu = cpu_ms();
        let mut pairs = measure_pairs(&worker, &variant, PAIRS).await;
        let cpu = cpu_ms() - cpu;
        pairs.sort_unstable();
        let quantile = |share: f64| {
            let index = (pairs.len() as f64 * share) as usize;
            pairs[index.min(pairs.len() - 1)].as_secs_f64() * 1e6
        };
        note("pair_p50_us", quantile(0.5));
        note("pair_p99_us", quantile(0.99));
        note("pair_cpu_us", cpu * 1e3 / PAIRS as f64);
    }
    if wanted("flood") {
        let (begun, cpu) = (Instant::now(), cpu_ms());
        flood(&worker, &variant, FLOOD).await;
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_ms() - cpu);
        note("in_flight", IN_FLIGHT as f64);
        note("messages_per_s", 2.0 * FLOOD as f64 / took);
        note("cpu_us_per_message", cpu * 1e3 / (2.0 * FLOOD as f64));
    }
    if wanted("crowd") {
        let (begun, cpu) = (Instant::now(), cpu_ms());
        crowd(&worker, &variant).await?;
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_ms() - cpu);
        note("crowd", CROWD as f64);
        note("crowd_pairs_per_s", PAIRS as f64 / took);
        note("crowd_cpu_us_per_pair", cpu * 1e3 / PAIRS as f64);
    }
    if wanted("tensors") {
        let bytes = vec![1; TENSOR_BYTES].into();
        let tensor = Tensor::from_bytes(DataType::Uint8, vec![TENSOR_BYTES], bytes)?;
        let begun = Instant::now();
        for _ in 0..TENSORS {
            let inputs = vec![NamedTensor::new("x", tensor.clone())];
            call(&worker, &variant, vec![Part::Inputs(inputs)]).await?;
        }
        let mib = ((TENSORS * TENSOR_BYTES) >> 20) as f64;
        note("tensors_mib_per_s", mib / begun.elapsed().as_secs_f64());
    }
    Ok(figures.into())
}

/// A worker that answers at once, behind a port of this machine.
async fn connect() -> Result<Arc<RemoteWorker>, Error> {
    let metadata = Arc::new(InProcessStore::new());
    let candidate = Candidate {
        role: sextant_fleet::LEADING_ROLE.into(),
        holder: "ping".into(),
        endpoint: "127.0.0.1:1".into(),
    };
    let elected = metadata.campaign(&candidate, u64::MAX, 0).await;
    let token = elected.ok().map(|leader| leader.token);
    let config = GrpcConfig::new(([127, 0, 0, 1], 0).into(), "ping");
    let server = GrpcServer::bind(config, metadata).await?;
    let mailbox = Mailbox::new(Arc::new(Echo), MailboxOptions::default());
    let name = mailbox.info().worker;
    server.roles().add_worker(mailbox);
    let endpoint = server.endpoint();
    tokio::spawn(server.run(std::future::pending()));
    let connector = GrpcConnector::new(ConnectorConfig::new(Hello {
        protocol: Protocol::OWN,
        fleet: "ping".into(),
        caller: Caller::Dispatcher,
        fence: Fence::following(watch::Sender::new(token).subscribe()),
    }))?;
    let link = connector.connect_worker(&name, &endpoint).await?;
    let connected = RemoteWorker::connect(link, Clock::system(), Options::default()).await;
    let (worker, connection) = connected.map_err(|error| Error::Serve(error.to_string()))?;
    tokio::spawn(connection.run(std::future::pending()));
    Ok(worker)
}

async fn measure_pairs(worker: &RemoteWorker, variant: &VariantId, pairs: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let begun = Instant::now();
        drop(call(worker, variant, Vec::new()).await);
        times.push(begun.elapsed());
    }
    times
}

async fn flood(worker: &RemoteWorker, variant: &VariantId, calls: usize) {
    let (answered, mut answers) = mpsc::unbounded_channel();
    let send = || {
        let answered = answered.clone();
        worker.infer(infer(
            variant,
            Vec::new(),
            Box::new(move |outcome| {
                let _ = answered.send(outcome.is_ok());
            }),
        ));
    };
    (0..IN_FLIGHT).for_each(|_| send());
    for number in 0..calls {
        answers.recv().await;
        if number + IN_FLIGHT < calls {
            send();
        }
    }
}

/// Tasks that each send one batch after the other.
async fn crowd(worker: &Arc<RemoteWorker>, variant: &VariantId) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CROWD {
        let (worker, variant) = (Arc::clone(worker), variant.clone());
        tasks.spawn(async move { measure_pairs(&worker, &variant, PAIRS / CROWD).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn call(worker: &RemoteWorker, variant: &VariantId, parts: Vec<Part>) -> InferOutcome {
    let (done, outcome) = tokio::sync::oneshot::channel();
    worker.infer(infer(
        variant,
        parts,
        Box::new(move |outcome| drop(done.send(outcome))),
    ));
    outcome
        .await
        .map_err(|_| sextant_rpc::InferError::ShuttingDown)?
}

fn infer(
    variant: &VariantId,
    parts: Vec<Part>,
    done: Box<dyn FnOnce(InferOutcome) + Send>,
) -> Infer {
    Infer {
        variant: variant.clone(),
        parts,
        earliest: Instant::now(),
        latest: None,
        expected: Duration::from_millis(1),
        offline_rows: 0,
        done,
    }
}

/// CPU time of this process, milliseconds.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields after the name in brackets; user and system time are the 12th and 13th of them, in hundredths of a
    // second.
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse::<f64>().ok())
        .sum();
    ticks * 10.0
}

struct Echo;

#[async_trait]
impl Work for Echo {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: WorkerId::new("echo").unwrap_or_else(|_| unreachable!("a sound name")),
            cores: 1,
            engines: Vec::new(),
            pages: Pages::default(),
            utilization: 0.0,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        Vec::new()
    }

    fn infer(&self, infer: Infer) {
        let outputs = infer.parts.into_iter().map(|part| match part {
            Part::Inputs(inputs) => Ok(inputs.into_iter().map(|it| it.tensor).collect()),
            Part::Held(_) => Ok(Vec::new()),
        });
        (infer.done)(Ok(BatchResult {
            outputs: outputs.collect(),
            timings: BatchTimings {
                started: Instant::now(),
                queue_us: 0.0,
                input_us: 0.0,
                exec_us: 0.0,
                output_us: 0.0,
                device_us: None,
            },
        }));
    }

    async fn load(&self, _load: Load) -> Result<LoadTimings, WorkError> {
        Ok(LoadTimings::default())
    }

    async fn unload(&self, _variant: &VariantId) -> Result<(), WorkError> {
        Ok(())
    }

    async fn leave(&self) -> Result<(), WorkError> {
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(WorkerStats::default())
    }
}
