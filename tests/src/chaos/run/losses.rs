//! The last act of a fleet: processes are lost one after another while a few clients go on. Each client waits for an
//! answer before it asks again. During the faults of the load several things were wrong at most times; here only one
//! loss can have caused each failure.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use super::{Stage, client, faults, load, rest};
use crate::{
    Wire,
    chaos::{
        check::STEADY_NUMBERS,
        history::Event,
        plan::{Application, Cut, Kind, Loss},
    },
    fleet::End,
};

/// Number of clients of each application at each front end.
const CLIENTS: usize = 2;
/// Time from an answer to the next query of its client.
const PAUSE: Duration = Duration::from_millis(15);
/// Time from the first query to the first loss, and from the end of a loss to the next.
const BETWEEN: Duration = Duration::from_millis(1500);
/// Time for which a process is away: longer than all leases, by more than the takeover takes.
const AWAY: Duration = Duration::from_secs(8);
/// Time between two resets of a wire.
const AGAIN: Duration = Duration::from_millis(100);

/// Carries out the plan's losses. Returns when every query has an outcome and everything is as before.
pub async fn carry_out(stage: &Arc<Stage>) -> Result<(), String> {
    if stage.plan.losses.is_empty() {
        return Ok(());
    }
    let clients = Clients::start(stage);
    for (number, loss) in stage.plan.losses.iter().enumerate() {
        sleep(BETWEEN).await;
        one(stage, number, *loss).await?;
    }
    sleep(BETWEEN).await;
    clients.stop().await;
    rest::settle(stage).await
}

async fn one(stage: &Arc<Stage>, number: usize, loss: Loss) -> Result<(), String> {
    let process = match loss {
        Loss::WorkerReset | Loss::WorkerKilled | Loss::WorkerFrozen => worker(stage).await?,
        Loss::LeaderKilled | Loss::LeaderFrozen => leader(stage).await?,
    };
    stage.history.note(Event::LossBegan {
        loss: number,
        process: process.clone(),
    });
    match loss {
        Loss::WorkerReset => {
            let end = End::Others;
            let cut = Cut::Resets;
            faults::once(stage, Kind::Wire { process, end, cut }, Duration::ZERO).await?;
        }
        Loss::WorkerKilled | Loss::LeaderKilled => {
            faults::once(stage, Kind::Kill { process }, AWAY).await?;
        }
        Loss::LeaderFrozen => faults::once(stage, Kind::Freeze { process }, AWAY).await?,
        Loss::WorkerFrozen => {
            let frozen = faults::once(stage, Kind::Freeze { process }, AWAY);
            // Until the autoscaler has seen that the worker is back.
            tokio::try_join!(frozen, cut_for(stage, AWAY + BETWEEN))?;
        }
    }
    stage.history.note(Event::LossEnded { loss: number });
    Ok(())
}

/// Resets the autoscaler's connections to the metadata store repeatedly: it writes when a worker goes, and when it
/// returns.
async fn cut_for(stage: &Stage, time: Duration) -> Result<(), String> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        stage.with(|service| service.wire("autoscaler", End::Redis).map(Wire::reset));
        sleep(AGAIN).await;
    }
    Ok(())
}

/// A worker that has an instance which no other worker has, if there is one: other workers must load it.
async fn worker(stage: &Stage) -> Result<String, String> {
    let to = (Method::GET, "/v1/instances");
    let reply = client::send(stage, &stage.plan.front_ends()[0], to, None).await?;
    let reply = reply.json();
    let mut of_variant: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in reply["instances"].as_array().into_iter().flatten() {
        let text = |name: &str| instance.get(name).and_then(Value::as_str);
        if let (Some(variant), Some(worker)) = (text("variant"), text("worker")) {
            of_variant.entry(variant).or_default().push(worker);
        }
    }
    let alone = of_variant.values().find(|workers| workers.len() == 1);
    let any = of_variant.values().next();
    let worker = alone
        .or(any)
        .and_then(|workers| workers.first())
        .ok_or("nothing is loaded")?;
    Ok((*worker).to_owned())
}

/// The dispatcher that leads.
async fn leader(stage: &Stage) -> Result<String, String> {
    for process in stage.plan.processes() {
        if rest::leads(stage, &process).await {
            return Ok(process);
        }
    }
    Err("no dispatcher leads".to_owned())
}

/// The clients that go on.
struct Clients {
    is_over: Arc<AtomicBool>,
    all: JoinSet<()>,
}

impl Clients {
    fn start(stage: &Arc<Stage>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let numbers = Arc::new(AtomicU64::new(STEADY_NUMBERS));
        let mut all = JoinSet::new();
        for front_end in stage.plan.front_ends() {
            for application in 0..stage.plan.applications.len() {
                for _ in 0..CLIENTS {
                    let (stage, front_end) = (Arc::clone(stage), front_end.clone());
                    let (is_over, numbers) = (Arc::clone(&is_over), Arc::clone(&numbers));
                    all.spawn(async move {
                        while !is_over.load(Ordering::Relaxed) {
                            let query = numbers.fetch_add(1, Ordering::Relaxed);
                            ask(&stage, &front_end, application, query).await;
                            sleep(PAUSE).await;
                        }
                    });
                }
            }
        }
        Self { is_over, all }
    }

    /// Waits for the outcome of all queries.
    async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.all.join_all().await;
    }
}

async fn ask(stage: &Stage, front_end: &str, application: usize, query: u64) {
    stage.history.note(Event::Asked {
        query,
        application,
        front_end: front_end.to_owned(),
    });
    let patient = Application {
        latency_ms: None,
        ..stage.plan.applications[application].clone()
    };
    let body = client::query(stage, &patient, query);
    let outcome = load::outcome(stage, front_end, query, body).await;
    stage.history.note(outcome);
}
