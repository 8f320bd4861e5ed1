//! A dispatcher that puts queries into small batches and gives each batch to any worker.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sextant_rpc::{
    Answer, Ask, Assignment, CacheHit, Dispatch, Explanation, Holder, Infer, InferError,
    InferOutcome, Part, Query, QueryError, Ticket, Timings, WorkerClient,
};
use sextant_types::{Code, ModelId, NamedTensor, Route, Signature, Variant, WorkerId};
use tokio::sync::{mpsc, oneshot};

use crate::{
    double::{id, variant},
    transport::next,
};

type Placed = Result<(), InferError>;

/// A query in the queue.
struct QueuedQuery {
    ticket: Ticket,
    holder: Arc<dyn Holder>,
    reply: oneshot::Sender<Placed>,
}

pub struct Placer {
    queue: mpsc::UnboundedSender<QueuedQuery>,
    workers: Mutex<Vec<(WorkerId, WorkerClient)>>,
    /// Whether queries are taken and never placed.
    pub stuck: AtomicBool,
    pub leads: AtomicBool,
    /// The variant that answers queries whose inputs the front end keeps.
    pub chosen: Mutex<Arc<Variant>>,
    /// The queries whose inputs the front end keeps.
    pub asked: Mutex<Vec<Ask>>,
    /// Number of queries that came with their inputs.
    pub answered: AtomicUsize,
    /// Number of queries that were dropped before they had ended.
    pub given_up: AtomicUsize,
    pub refuse: Mutex<Option<QueryError>>,
}

impl Placer {
    pub fn start(seed: u64) -> Arc<Self> {
        let (queue, waiting) = mpsc::unbounded_channel();
        let placer = Arc::new(Self {
            queue,
            workers: Mutex::default(),
            stuck: AtomicBool::new(false),
            leads: AtomicBool::new(true),
            chosen: Mutex::new(variant("m-a")),
            asked: Mutex::default(),
            answered: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            refuse: Mutex::default(),
        });
        tokio::spawn(batches(Arc::downgrade(&placer), waiting, seed));
        placer
    }

    pub fn set_worker(&self, worker: &WorkerId, client: WorkerClient) {
        let mut workers = self.workers.lock().expect("sound");
        workers.retain(|(known, _)| known != worker);
        workers.push((worker.clone(), client));
    }

    /// Runs a batch of one query on any worker that takes it.
    async fn run(&self, inputs: Vec<NamedTensor>) -> Result<Answer, QueryError> {
        let mut random = 1;
        for _ in 0..4 {
            let Some((_, client)) = self.pick(&mut random) else {
                break;
            };
            let (reply, outcome) = oneshot::channel();
            client.infer(Infer {
                variant: id("m-a"),
                parts: vec![Part::Inputs(inputs.clone())],
                earliest: tokio::time::Instant::now().into_std(),
                latest: None,
                expected: Duration::from_millis(1),
                offline_rows: 0,
                done: Box::new(|outcome| drop(reply.send(outcome))),
            });
            match outcome.await {
                Ok(Ok(mut result)) => {
                    let outputs = result.outputs.remove(0).expect("it runs alone");
                    let outputs = outputs.into_iter();
                    return Ok(Answer {
                        variant: id("m-a"),
                        model: ModelId::new("m").expect("a name"),
                        outputs: outputs.map(|it| NamedTensor::new("y", it)).collect(),
                        rows: 1,
                        timings: Timings::default(),
                        targets_met: true,
                        cost_usd: 0.5,
                        explanation: None,
                    });
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        Err(QueryError::new(Code::Unavailable, "no worker took it"))
    }

    fn chosen(&self) -> Arc<Variant> {
        Arc::clone(&self.chosen.lock().expect("sound"))
    }

    fn pick(&self, random: &mut u64) -> Option<(WorkerId, WorkerClient)> {
        let workers = self.workers.lock().expect("sound");
        let at = next(random) as usize % workers.len().max(1);
        workers.get(at).cloned()
    }
}

async fn batches(
    placer: std::sync::Weak<Placer>,
    mut waiting: mpsc::UnboundedReceiver<QueuedQuery>,
    mut random: u64,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, 1).await > 0 {
        tokio::time::sleep(Duration::from_millis(next(&mut random) % 3)).await;
        let more = next(&mut random) as usize % 4;
        while batch.len() <= more
            && let Ok(another) = waiting.try_recv()
        {
            batch.push(another);
        }
        let Some(placer) = placer.upgrade() else {
            return;
        };
        match placer.pick(&mut random) {
            Some(to) => send(batch.split_off(0), &placer.chosen(), &to, &mut random),
            None => batch.clear(),
        }
    }
}

fn send(
    batch: Vec<QueuedQuery>,
    chosen: &Variant,
    (worker, client): &(WorkerId, WorkerClient),
    random: &mut u64,
) {
    let assign = |waiting: &QueuedQuery| {
        waiting.holder.assign(Assignment {
            ticket: waiting.ticket,
            worker: worker.clone(),
            variant: chosen.id.clone(),
            model: chosen.model.clone(),
            file: Some(chosen.artefact),
            suits: true,
            load: false,
            second_usd: 0.5,
            explanation: Some(Explanation::default()),
        });
    };
    let before = next(random).is_multiple_of(2);
    if before {
        batch.iter().for_each(assign);
    }
    let now = tokio::time::Instant::now().into_std();
    let (parts, rest): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|waiting| (Part::Held(waiting.ticket), waiting))
        .unzip();
    let rest = Arc::new(Mutex::new(Some(rest)));
    let kept = Arc::clone(&rest);
    client.infer(Infer {
        variant: chosen.id.clone(),
        parts,
        earliest: now,
        latest: next(random)
            .is_multiple_of(2)
            .then(|| now + Duration::from_millis(60)),
        expected: Duration::from_millis(1),
        offline_rows: 0,
        done: Box::new(move |outcome| {
            let batch = kept.lock().expect("sound").take().unwrap_or_default();
            settle(batch, outcome);
        }),
    });
    if !before && let Some(batch) = rest.lock().expect("sound").as_ref() {
        batch.iter().for_each(assign);
    }
}

fn settle(batch: Vec<QueuedQuery>, outcome: InferOutcome) {
    match outcome {
        Ok(result) => {
            for (waiting, part) in batch.into_iter().zip(result.outputs) {
                let placed = part.map(|outputs| {
                    assert!(outputs.is_empty(), "outputs go to the front end");
                });
                let _ = waiting.reply.send(placed);
            }
        }
        Err(error) => {
            for waiting in batch {
                let _ = waiting.reply.send(Err(error.clone()));
            }
        }
    }
}

#[async_trait]
impl Dispatch for Placer {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        let mut guard = DropCounter(Some(&self.given_up));
        self.answered.fetch_add(1, Ordering::Relaxed);
        let refused = self.refuse.lock().expect("sound").clone();
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let ran = match refused {
            Some(error) => Err(error),
            None => self.run(query.inputs).await,
        };
        guard.0 = None;
        ran
    }

    async fn place(&self, ask: Ask, holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        let mut guard = DropCounter(Some(&self.given_up));
        let mut ticket = ask.ticket;
        let chosen = self.chosen();
        let has = ask.kept.iter().any(|it| it.variant == chosen.id);
        self.asked.lock().expect("sound").push(ask);
        if has {
            guard.0 = None;
            holder.has(CacheHit {
                ticket,
                variant: chosen.id.clone(),
                model: chosen.model.clone(),
                suits: true,
                explanation: None,
            });
            return Ok(());
        }
        if let Some(error) = self.refuse.lock().expect("sound").clone() {
            guard.0 = None;
            return Err(error);
        }
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        for _ in 0..4 {
            let (reply, placed) = oneshot::channel();
            let waiting = QueuedQuery {
                ticket,
                holder: Arc::clone(&holder),
                reply,
            };
            drop(self.queue.send(waiting));
            ticket.attempt += 1;
            match placed.await {
                Ok(Ok(())) => {
                    guard.0 = None;
                    return Ok(());
                }
                Ok(Err(InferError::BadShape(reason))) => {
                    guard.0 = None;
                    return Err(QueryError::new(Code::InvalidTensor, reason));
                }
                Ok(Err(InferError::Failed { code, reason })) => {
                    guard.0 = None;
                    return Err(QueryError::new(code, reason));
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        guard.0 = None;
        Err(QueryError::new(Code::Unavailable, "no worker took it"))
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Err(QueryError::not_found(route))
    }

    fn utilization(&self) -> f64 {
        0.25
    }

    fn is_ready(&self, _route: &Route) -> bool {
        false
    }
}

/// Counts values that are dropped while the counter is there.
struct DropCounter<'a>(Option<&'a AtomicUsize>);

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
