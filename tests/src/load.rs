//! Clients that ask continuously, and count the outcomes of their queries.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::task::JoinSet;

use crate::{Api, digits, until};

/// Number of images in the queries.
const IMAGES: usize = 16;

/// Clients of the application `digits`. Each sends a query as soon as it has the answer to the
/// previous one.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    images: digits::Images,
    /// The digit on each image according to the service when nothing was wrong.
    digits: Vec<usize>,
    latency_ms: Option<f64>,
    stop: AtomicBool,
    sent: AtomicU64,
    tally: Mutex<Tally>,
}

/// The outcomes of the queries of a [`Load`].
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Queries sent.
    pub sent: u64,
    /// Queries answered correctly.
    pub answered: u64,
    /// Queries refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// The longest wait for an answer or a refusal.
    pub longest: Duration,
    /// When the last query was answered.
    pub last: Option<Instant>,
    /// The longest time between two answers.
    pub longest_gap: Duration,
}

impl Load {
    /// Starts `clients` clients. `latency_ms` is the target of each query.
    pub async fn start(api: Api, clients: usize, latency_ms: Option<f64>) -> Self {
        let mut shared = Shared {
            api,
            images: digits::Images::load("test"),
            digits: Vec::new(),
            latency_ms,
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            tally: Mutex::default(),
        };
        for image in 0..IMAGES {
            let answer = shared.ask(image, None).await.json(200);
            shared.digits.push(shown(&answer));
        }
        let shared = Arc::new(shared);
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move { shared.run(client).await });
        }
        Self {
            shared,
            clients: tasks,
        }
    }

    /// Waits until `more` queries have been answered from now on.
    pub async fn answers(&self, more: u64) {
        let before = self.shared.tally().answered;
        until("queries are answered", || async {
            (self.shared.tally().answered >= before + more).then_some(())
        })
        .await;
    }

    /// The outcomes so far.
    pub fn tally(&self) -> Tally {
        self.shared.tally()
    }

    /// Sends no more queries, waits for the running ones, and checks that each query had exactly
    /// one outcome.
    pub async fn stop(mut self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a client does not panic");
        }
        let tally = self.shared.tally();
        let refused: u64 = tally.refused.values().sum();
        assert_eq!(tally.sent, tally.answered + refused, "{tally:?}");
        tally
    }
}

impl Shared {
    async fn ask(&self, image: usize, latency_ms: Option<f64>) -> crate::Answer {
        let targets = latency_ms.map_or(json!({}), |ms| json!({"latency_ms": ms}));
        let inputs = self.images.input(image);
        let query = json!({"application": "digits", "targets": targets, "inputs": inputs});
        self.api.post("/v1/queries", &query).await
    }

    async fn run(&self, client: usize) {
        let mut image = client;
        while !self.stop.load(Ordering::Relaxed) {
            image = (image + 1) % IMAGES;
            self.sent.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let answer = self.ask(image, self.latency_ms).await;
            let took = begun.elapsed();
            let refusal = (!answer.status.is_success()).then(|| refusal(&answer));
            if refusal.is_none() {
                let shown = shown(&answer.json(200));
                assert_eq!(shown, self.digits[image], "the answer to another query");
            }
            self.note(took, refusal.as_deref());
            if refusal.is_some() {
                // A client that was refused waits before it asks again.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    fn note(&self, took: Duration, refusal: Option<&str>) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.longest = tally.longest.max(took);
        match refusal {
            Some(code) => *tally.refused.entry(code.to_owned()).or_default() += 1,
            None => {
                let now = Instant::now();
                if let Some(last) = tally.last.replace(now) {
                    tally.longest_gap = tally.longest_gap.max(now - last);
                }
                tally.answered += 1;
            }
        }
    }

    fn tally(&self) -> Tally {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        Tally {
            sent: self.sent.load(Ordering::Relaxed),
            ..tally.clone()
        }
    }
}

/// The digit in an answer.
fn shown(answer: &serde_json::Value) -> usize {
    digits::digit(&answer["outputs"][0]["data"])
}

/// The code of a refusal. An answer that is not a problem document with a code and a reason fails
/// the test.
fn refusal(answer: &crate::Answer) -> String {
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = problem["code"].as_str();
    let code = code.unwrap_or_else(|| panic!("no refusal: {} {}", answer.status, answer.text()));
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(!detail.is_empty(), "a refusal says why: {problem}");
    assert_ne!(code, "internal", "{problem}");
    code.to_owned()
}
