//! `cargo xtask demo --load`: how workers come and go with the load, and why, in about five minutes.
//!
//! One process plays every role but the worker's, over Redis and files of its own. Its workers are child
//! processes with one emulated device each: a small one that is cheap, and a large one that answers
//! more for its price and is worth it only while much is asked for. Queries come at a steady rate, more,
//! many more, and few again.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sextant_test_servers::redis::Redis;

use crate::{
    http::Connection,
    paths, provision,
    server::{self, Server},
    shell,
};

/// Rates, queries a second, and for how long each is kept, s.
const PHASES: [(f64, u64); 5] = [(5.0, 30), (60.0, 50), (150.0, 60), (60.0, 50), (2.0, 110)];

/// Clients that ask, each one query at a time.
const CLIENTS: u64 = 64;

/// Time between two lines, s.
const LINE_S: u64 = 5;

/// How long it may take until the variant was measured on the first worker.
const MEASURED_WITHIN: Duration = Duration::from_secs(120);

/// Most milliseconds that an answer may take.
const TARGET_MS: u64 = 500;

/// Where the demo's settings differ from the defaults: a hold of half a minute in place of ten, so that
/// workers leave while somebody looks.
const SETTINGS: &str = r#"
roles = ["api", "dispatcher", "autoscaler", "variant-gen"]

[fleet]
listen = "127.0.0.1:0"

[variants]
engines = ["emulated"]

[worker.emulated]
delays = false

[worker.emulated.types.small]
speed = 0.01

[worker.emulated.types.large]
speed = 0.15

[prices.devices.small]
hour_usd = 0.4
start_s = 5

[prices.devices.large]
hour_usd = 0.9
start_s = 8

[autoscaler]
hold_s = 30

[autoscaler.pools.small]
least = 1
most = 6

[autoscaler.pools.large]
least = 0
most = 2
"#;

/// What clients share.
#[derive(Default)]
struct Shared {
    /// Queries a second, in thousandths.
    rate: AtomicU64,
    /// When the next query is due.
    next: Mutex<Option<Instant>>,
    stop: AtomicBool,
    asked: AtomicU64,
    in_time: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
}

/// Runs the demo to its end.
pub fn run() -> Result<()> {
    let provisioned = provision::runtime()?;
    provision::needs::install(provision::needs::SERVERS)?;
    let binary = server::build()?;
    let redis = Redis::start();
    let data = paths::empty_target("demo-load")?;
    let server = server::over_redis(&binary, &provisioned, (&data, SETTINGS), &redis)?;
    super::register_model(&binary, server.address, ("digits", "cnn-large"))?;
    await_profiles(&server)?;
    println!("{}", header());
    let shared = Arc::new(Shared::default());
    shared.set_rate(PHASES[0].0);
    let clients: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|_| {
            let (shared, at) = (Arc::clone(&shared), server.address);
            thread::spawn(move || ask(&shared, at))
        })
        .collect();
    let shown = show(&server, &shared);
    shared.stop.store(true, Ordering::Relaxed);
    for client in clients {
        drop(client.join());
    }
    shown?;
    summary(&shared, &binary, &server)
}

/// Waits until the variant was measured on the first worker. Until then plans rest on how long it took where
/// it was registered, where it runs a hundred times as fast.
fn await_profiles(server: &Server) -> Result<()> {
    shell::say("waiting until the variant is measured on the first worker");
    let deadline = Instant::now() + MEASURED_WITHIN;
    loop {
        let body = server
            .connect()?
            .get("/v1/models/cnn-large/variants")?
            .json()?;
        let variants = body["variants"].as_array().into_iter().flatten();
        let mut profiles = variants.flat_map(|of| of["profiles"].as_array().into_iter().flatten());
        if profiles.any(|of| of["device_type"] == "small" && of["estimated"] == false) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the variant was not measured on the first worker within {} s",
            MEASURED_WITHIN.as_secs()
        );
        shell::pause(Duration::from_millis(200));
    }
}

fn header() -> String {
    format!(
        "\nTwo types of emulated devices: `small` for 0.40 USD an hour, `large` for 0.90. An answer may \
         take {TARGET_MS} ms.\nEvery decision is printed when it is made, with its reason; `GET \
         /v1/scaling/decisions` has them all.\n"
    )
}

/// Keeps the rates, and prints what happens.
fn show(server: &Server, shared: &Shared) -> Result<()> {
    let mut seen = 0;
    let mut before = [0; 3];
    for (rate, seconds) in PHASES {
        println!("-- {rate} queries a second from now on");
        shared.set_rate(rate);
        for _ in 0..seconds / LINE_S {
            shell::pause(Duration::from_secs(LINE_S));
            let mut connection = server.connect()?;
            seen = decisions(&mut connection, seen)?;
            let now = [&shared.in_time, &shared.late, &shared.refused];
            let now = now.map(|count| count.load(Ordering::Relaxed));
            let scaling = connection.get("/v1/scaling")?.json()?;
            println!("{}", line(&scaling, now, before));
            before = now;
        }
    }
    Ok(())
}

/// Prints the decisions after number `seen`, and returns the last number.
fn decisions(connection: &mut Connection, seen: u64) -> Result<u64> {
    let body = connection.get("/v1/scaling/decisions?limit=64")?.json()?;
    let all = body["decisions"]
        .as_array()
        .context("a list of decisions")?;
    let number = |decision: &Value| decision["number"].as_u64().unwrap_or(0);
    for decision in all.iter().rev().filter(|it| number(it) > seen) {
        let text = |field: &str| decision[field].as_str().unwrap_or_default();
        println!(
            "   #{} {} `{}`: {} -> {}, because {}",
            number(decision),
            text("action"),
            decision["subject"]["name"].as_str().unwrap_or_default(),
            decision["from"],
            decision["to"],
            text("reason"),
        );
        for other in decision["alternatives"].as_array().into_iter().flatten() {
            println!(
                "        not {}: {}",
                other["what"].as_str().unwrap_or_default(),
                other["why_not"].as_str().unwrap_or_default()
            );
        }
    }
    Ok(all.iter().map(number).max().unwrap_or(0).max(seen))
}

/// What there is, and what became of the queries since the last line.
fn line(scaling: &Value, now: [u64; 3], before: [u64; 3]) -> String {
    let [in_time, late, refused] = [0, 1, 2].map(|at| now[at] - before[at]);
    let pools = scaling["pools"].as_array().into_iter().flatten();
    let pools = pools.map(|pool| {
        format!(
            "{} {}/{}",
            pool["device_type"].as_str().unwrap_or_default(),
            pool["up"],
            pool["desired"]
        )
    });
    let pools: Vec<String> = pools.collect();
    format!(
        "{:6.1} answers/s in time, {late} late, {refused} refused | up/desired: {}",
        in_time as f64 / LINE_S as f64,
        pools.join(", ")
    )
}

fn summary(shared: &Shared, binary: &Path, server: &Server) -> Result<()> {
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let asked = count(&shared.asked);
    let missed = count(&shared.late) + count(&shared.refused);
    println!(
        "\n{asked} queries, {} in time, {missed} late or refused ({:.2} %).\n",
        count(&shared.in_time),
        100.0 * missed as f64 / asked.max(1) as f64
    );
    let address = format!("http://{}", server.address);
    shell::run(
        shell::command(binary)
            .args(["--server", &address])
            .args(["explain", "scaling", "--limit", "5"]),
    )
}

// === impl Shared ===

impl Shared {
    /// So many queries a second from now on.
    fn set_rate(&self, rate: f64) {
        self.rate.store((rate * 1e3) as u64, Ordering::Relaxed);
    }

    /// Waits until a query is due that the caller sends; `false` once the demo is over. Queries come
    /// evenly, and what nobody was free to send in time is not made up for.
    fn await_turn(&self) -> bool {
        // One client waits at a time, so that a new rate holds at once.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let due = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
        shell::pause(due.saturating_duration_since(Instant::now()));
        let rate = self.rate.load(Ordering::Relaxed).max(1) as f64 / 1e3;
        *next = Some(due + Duration::from_secs_f64(1.0 / rate));
        !self.stop.load(Ordering::Relaxed)
    }
}

/// One client: sends a query whenever it is its turn.
fn ask(shared: &Shared, at: SocketAddr) {
    let body = super::query(&json!({"latency_ms": TARGET_MS}));
    let mut connection = None;
    while shared.await_turn() {
        let now = Instant::now();
        shared.asked.fetch_add(1, Ordering::Relaxed);
        if connection.is_none() {
            connection = Connection::open(at, Duration::from_secs(30)).ok();
        }
        let answer = connection.as_mut().map(|it| it.post("/v1/queries", &body));
        let in_time = now.elapsed() <= Duration::from_millis(TARGET_MS);
        let counted = match answer {
            Some(Ok(answer)) if answer.status == 200 && in_time => &shared.in_time,
            Some(Ok(answer)) if answer.status == 200 => &shared.late,
            Some(Ok(_)) => &shared.refused,
            _ => {
                connection = None;
                &shared.refused
            }
        };
        counted.fetch_add(1, Ordering::Relaxed);
    }
}
