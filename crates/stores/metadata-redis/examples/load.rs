//! Measures what a fleet's reports cost the server, and how soon a follower sees them. Workers
//! report the load of all their instances every two seconds, while one follower reads the feed.
//!
//! `cargo run --release -p sextant-metadata-redis --example load [SECONDS [INSTANCES]]` prints one
//! JSON object. The example starts its own server with an append-only file. The server's share of a
//! core comes from `/proc/PID/stat`. A delay is the time from before the report is sent until the
//! follower has applied the event.

use std::{
    collections::HashMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_metadata::{
    Command, Event, InstanceKey, MetadataStore, Transition, View, WorkerRecord,
};
use sextant_metadata_redis::{RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;
use sextant_types::{ApplicationId, VariantId, WorkerId};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
/// When the last report of each instance was sent.
type ReportTimes = Arc<Mutex<HashMap<InstanceKey, Instant>>>;

const WORKERS: usize = 20;
const PERIOD: Duration = Duration::from_secs(2);
/// Clock ticks per second in `/proc`, on every present Linux.
const TICKS_PER_S: f64 = 100.0;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let instances: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let server = Redis::start();
    let sent = ReportTimes::default();
    let mut workers = Vec::new();
    for index in 0..WORKERS {
        let share = instances / WORKERS + usize::from(index < instances % WORKERS);
        workers.push(Worker::announce(&server, index, share).await?);
    }
    let rounds = seconds * 1000 / PERIOD.as_millis() as u64;
    let updates = instances * rounds as usize;
    let follower = tokio::spawn(follow(
        RedisStore::connect(RedisConfig::new(server.url())).await?,
        sent.clone(),
        updates,
    ));
    let (begun, used) = (Instant::now(), ticks(server.process_id())?);
    let reports = workers
        .into_iter()
        .map(|worker| tokio::spawn(worker.report(sent.clone(), rounds)));
    let reports: Vec<_> = reports.collect();
    for report in reports {
        report.await??;
    }
    let wall_s = begun.elapsed().as_secs_f64();
    let used_s = (ticks(server.process_id())? - used) / TICKS_PER_S;
    let mut delays_ms = follower.await??;
    delays_ms.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        let index = (delays_ms.len() as f64 * share) as usize;
        delays_ms.get(index.min(delays_ms.len().saturating_sub(1)))
    };
    let report = serde_json::json!({
        "instances": instances,
        "workers": WORKERS,
        "updates_per_s": updates as f64 / wall_s,
        "events_followed": delays_ms.len(),
        "redis_core_percent": 100.0 * used_s / wall_s,
        "feed_delay_p50_ms": quantile(0.5),
        "feed_delay_p99_ms": quantile(0.99),
    });
    #[expect(clippy::print_stdout, reason = "the result of the program")]
    {
        println!("{report:#}");
    }
    Ok(())
}

/// The part of one worker process: a connection and its own instances.
struct Worker {
    store: Arc<RedisStore>,
    id: WorkerId,
    index: usize,
    keys: Vec<InstanceKey>,
    application: ApplicationId,
}

impl Worker {
    async fn announce(server: &Redis, index: usize, instances: usize) -> Outcome<Self> {
        let id = WorkerId::new(format!("worker-{index}"))?;
        let key = |number| {
            let variant = VariantId::new(format!("variant-{number}"))?;
            Ok(InstanceKey::new(variant, id.clone()))
        };
        let keys: Outcome<Vec<_>> = (0..instances).map(key).collect();
        let worker = Self {
            store: RedisStore::connect(RedisConfig::new(server.url())).await?,
            keys: keys?,
            application: ApplicationId::new("app")?,
            id,
            index,
        };
        worker.beat().await?;
        for command in [Command::Load, Command::Loaded] {
            for answer in worker.all(|_| command.clone()).await {
                answer?;
            }
        }
        Ok(worker)
    }

    /// Reports everything once in a period, each worker at its own moment of the period.
    async fn report(self, sent: ReportTimes, rounds: u64) -> Outcome<()> {
        let offset = PERIOD * self.index as u32 / WORKERS as u32;
        let start = tokio::time::Instant::now() + offset;
        let mut timer = tokio::time::interval_at(start, PERIOD);
        for round in 0..rounds {
            timer.tick().await;
            self.beat().await?;
            let now = Instant::now();
            let mine = self.keys.iter().map(|key| (key.clone(), now));
            sent.lock().extend(mine);
            let load = move |index: usize| ((round as usize * 31 + index * 7) % 100) as f64 / 100.0;
            for answer in self
                .all(|index| Command::Report { load: load(index) })
                .await
            {
                answer?;
            }
        }
        // The last period of each worker ends with that of the others.
        tokio::time::sleep_until(start - offset + PERIOD * rounds as u32).await;
        Ok(())
    }

    async fn beat(&self) -> Outcome<()> {
        let record = WorkerRecord {
            endpoint: Some("127.0.0.1:7070".into()),
            device: "cpu".into(),
            engines: Vec::new(),
            draining: false,
            cores: 2,
            memory_bytes: 1 << 34,
            memory_used_bytes: 1 << 33,
            utilization: 0.5,
            ..WorkerRecord::default()
        };
        self.store.heartbeat(&self.id, record, 60_000, 0).await?;
        Ok(())
    }

    async fn all(
        &self,
        command: impl Fn(usize) -> Command,
    ) -> Vec<Result<sextant_metadata::Instance, sextant_metadata::Error>> {
        let transition = |(index, key): (usize, &InstanceKey)| Transition {
            key: key.clone(),
            application: self.application.clone(),
            expected_version: None,
            command: command(index),
        };
        let transitions: Vec<_> = self.keys.iter().enumerate().map(transition).collect();
        self.store.transitions(&transitions, 0).await
    }
}

/// Keeps a view current until it has applied `wanted` reports. Returns the age of each, ms.
async fn follow(store: Arc<RedisStore>, sent: ReportTimes, wanted: usize) -> Outcome<Vec<f64>> {
    let mut view = View::from(store.snapshot().await?);
    let mut delays_ms = Vec::with_capacity(wanted);
    while delays_ms.len() < wanted {
        store.changed(view.cursor).await?;
        let changes = store.changes(view.cursor).await?;
        view.follow(&changes);
        let now = Instant::now();
        let sent = sent.lock();
        for event in &changes.events {
            if let Event::InstanceChanged(instance) = event
                && let Some(sent) = sent.get(&instance.key)
            {
                delays_ms.push((now - *sent).as_secs_f64() * 1e3);
            }
        }
    }
    Ok(delays_ms)
}

/// Processor time that a process has used, in clock ticks.
fn ticks(process: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold any text; the fields after it are counted.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let mut fields = fields.split(' ').skip(11);
    let mut next = || fields.next().unwrap_or_default().parse::<f64>();
    Ok(next()? + next()?)
}
