//! Measures what a query costs on its way through a fleet, without the transport: a front end, a
//! dispatcher that places each query at once, a mailbox and a worker that does nothing, connected
//! by links inside the process. Prints JSON.
//!
//! `cargo run --release -p sextant-links --example crossing -- QUERIES AT_ONCE`

#![expect(clippy::print_stdout, reason = "the figures are its answer")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_links::{
    front::{
        Connector, DispatcherHalf, DispatcherLink, FrontEnd, FrontOptions, MailboxLink,
        Unreachable, serve,
    },
    link::{Clock, pair},
    mailbox::{Mailbox, MailboxOptions, serve_mailbox},
};
use sextant_metadata::{Candidate, InProcessStore, MetadataStore, WorkerRecord, conformance};
use sextant_rpc::{
    Answer, Ask, Assignment, BatchResult, BatchTimings, Dispatch, Holder, Infer, InferError,
    InferOutcome, Load, LoadTimings, Part, Query, QueryError, VariantUsage, Work, WorkError,
    WorkerClient, WorkerInfo, WorkerStats,
};
use sextant_types::{
    ApplicationId, Code, EngineName, NamedTensor, Route, Signature, Targets, Tensor, Variant,
    WorkerId,
};
use tokio::sync::oneshot;

/// A worker that answers each batch at once with outputs as the signature requires.
struct Idle(WorkerId);

/// Places each query alone on the one worker.
struct Placer {
    worker: (WorkerId, WorkerClient),
    variant: Arc<Variant>,
}

/// Links inside the process.
struct InProcessLinks {
    dispatcher: Arc<Placer>,
    mailbox: Arc<Mailbox>,
}

#[async_trait]
impl Work for Idle {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: self.0.clone(),
            cores: 1,
            engines: vec![EngineName("idle".to_owned())],
            pages: Default::default(),
            utilization: 0.0,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        Vec::new()
    }

    fn infer(&self, infer: Infer) {
        let outputs = infer.parts.into_iter().map(|part| match part {
            Part::Inputs(inputs) => Ok(inputs.into_iter().map(|input| input.tensor).collect()),
            Part::Held(_) => Err(InferError::failed("the mailbox keeps such parts")),
        });
        let result = BatchResult {
            outputs: outputs.collect(),
            timings: BatchTimings {
                started: Instant::now(),
                queue_us: 0.0,
                input_us: 0.0,
                exec_us: 0.0,
                output_us: 0.0,
                device_us: None,
            },
        };
        (infer.done)(Ok(result));
    }

    async fn load(&self, _load: Load) -> Result<LoadTimings, WorkError> {
        Ok(LoadTimings::default())
    }

    async fn unload(&self, _variant: &sextant_types::VariantId) -> Result<(), WorkError> {
        Ok(())
    }

    async fn leave(&self) -> Result<(), WorkError> {
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(WorkerStats::default())
    }
}

#[async_trait]
impl Dispatch for Placer {
    async fn query(&self, _query: Query) -> Result<Answer, QueryError> {
        Err(QueryError::new(Code::Internal, "it has no inputs"))
    }

    async fn place(&self, ask: Ask, holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        let (done, outcome) = oneshot::channel::<InferOutcome>();
        let (worker, client) = &self.worker;
        client.infer(Infer {
            variant: self.variant.id.clone(),
            parts: vec![Part::Held(ask.ticket)],
            earliest: Instant::now(),
            latest: None,
            expected: Duration::ZERO,
            offline_rows: 0,
            done: Box::new(move |outcome| drop(done.send(outcome))),
        });
        holder.assign(Assignment {
            ticket: ask.ticket,
            worker: worker.clone(),
            variant: self.variant.id.clone(),
            model: self.variant.model.clone(),
            file: None,
            suits: true,
            load: false,
            second_usd: 0.5,
            explanation: None,
        });
        let failed = |error: String| QueryError::new(Code::EngineFailed, error);
        let outcome = outcome.await.map_err(|error| failed(error.to_string()))?;
        outcome.map(drop).map_err(|error| failed(error.to_string()))
    }

    fn signature(&self, _route: &Route) -> Result<Signature, QueryError> {
        Ok(self.variant.signature.clone())
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, _route: &Route) -> bool {
        true
    }
}

#[async_trait]
impl Connector for InProcessLinks {
    async fn connect_dispatcher(&self, _endpoint: &str) -> Result<DispatcherLink, Unreachable> {
        let (near, far) = pair();
        let half = DispatcherHalf {
            dispatcher: Arc::clone(&self.dispatcher) as _,
            leads: Arc::new(|| true),
            clock: Clock::system(),
        };
        tokio::spawn(serve(half, far, std::future::pending()));
        Ok(near)
    }

    async fn connect_mailbox(
        &self,
        _worker: &WorkerId,
        _endpoint: &str,
    ) -> Result<MailboxLink, Unreachable> {
        let (near, far) = pair();
        let mailbox = Arc::clone(&self.mailbox);
        tokio::spawn(serve_mailbox(mailbox, far, std::future::pending()));
        Ok(near)
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let queries = arguments.next().and_then(Result::ok).unwrap_or(20_000);
    let at_once = arguments.next().and_then(Result::ok).unwrap_or(1).max(1);
    let front = start().await;
    let took = Arc::new(Mutex::new(Vec::with_capacity(queries)));
    let begun = (Instant::now(), cpu_seconds());
    let clients = (0..at_once).map(|_| {
        let (front, took) = (Arc::clone(&front), Arc::clone(&took));
        tokio::spawn(async move {
            let sample = query(Instant::now());
            for _ in 0..queries / at_once {
                let (mut query, arrived) = (sample.clone(), Instant::now());
                query.arrived = arrived;
                front.query(query).await.expect("an answer");
                let us = arrived.elapsed().as_secs_f64() * 1e6;
                took.lock().expect("sound").push(us);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
    let (wall_s, cpu_s) = (begun.0.elapsed().as_secs_f64(), cpu_seconds() - begun.1);
    let mut took = took.lock().expect("sound").clone();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"queries\": {}, \"at_once\": {at_once}, \"p50_us\": {:.1}, \"p99_us\": {:.1}, \
         \"queries_per_s\": {:.0}, \"cpu_us_per_query\": {:.1}}}",
        took.len(),
        at(0.5),
        at(0.99),
        took.len() as f64 / wall_s,
        cpu_s * 1e6 / took.len() as f64,
    );
}

/// A front end with its links.
async fn start() -> Arc<FrontEnd> {
    let store = Arc::new(InProcessStore::new());
    let variant = conformance::sample_variant("variant", 1.0);
    let worker = WorkerId::new("worker").expect("a name");
    let published = store.publish_variant(Arc::clone(&variant)).await;
    published.expect("stored");
    let record = WorkerRecord {
        endpoint: Some("inside:1".into()),
        device: "cpu".into(),
        engines: Vec::new(),
        draining: false,
        cores: 1,
        memory_bytes: 1,
        memory_used_bytes: 0,
        utilization: 0.0,
        ..WorkerRecord::default()
    };
    let beat = store.heartbeat(&worker, record, u64::MAX / 4, 0).await;
    beat.expect("stored");
    let candidate = Candidate {
        role: "dispatcher".into(),
        holder: "it".into(),
        endpoint: "inside:2".into(),
    };
    let leader = store.campaign(&candidate, u64::MAX / 4, 0).await;
    leader.expect("stored");
    let mailbox = Mailbox::new(Arc::new(Idle(worker.clone())), MailboxOptions::default());
    let dispatcher = Arc::new(Placer {
        worker: (worker, Arc::clone(&mailbox) as _),
        variant,
    });
    let front = FrontEnd::new(FrontOptions::default(), Clock::system());
    let inside = Arc::new(InProcessLinks {
        dispatcher,
        mailbox,
    });
    let running = Arc::clone(&front).run(inside, store, std::future::pending());
    tokio::spawn(running);
    // Until everything is warm and all links are open.
    while front.query(query(Instant::now())).await.is_err() {}
    front
}

fn query(arrived: Instant) -> Query {
    let variant = conformance::sample_variant("variant", 1.0);
    let inputs = variant.signature.inputs.iter().map(|spec| {
        let shape: Vec<usize> = spec
            .shape
            .iter()
            .map(|size| size.unwrap_or(1) as usize)
            .collect();
        let count = shape.iter().product();
        let tensor = Tensor::from_elements(shape, &vec![1.0f32; count]);
        NamedTensor::new(&spec.name, tensor.expect("as many as the shape says"))
    });
    Query {
        targets: Targets {
            latency_ms: Some(1_000.0),
            ..Targets::default()
        },
        ..Query::new(
            Route::Application(ApplicationId::new("app").expect("a name")),
            inputs.collect(),
            arrived,
        )
    }
}

/// Processor time of this process, seconds; zero if the system does not show it.
fn cpu_seconds() -> f64 {
    /// Ticks per second of the counters, on every Linux.
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_S
}
