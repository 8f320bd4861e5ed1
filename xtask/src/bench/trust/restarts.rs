//! Rolling restarts of a fleet under load. Two front ends, two dispatchers, two workers and the other roles are told to
//! end and started again, one after the other, in several rounds. Clients use the front ends that a balancer would use,
//! which asks each front end every tenth of a second whether it is ready.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::figure;
use crate::{
    bench::{
        bed::{Bench, numbers},
        fleet::members::Fleet,
        report::Report,
    },
    http::Connection,
    shell,
};

/// Number of rounds in which everything is restarted.
const ROUNDS: usize = 10;
/// Clients, each with one query under way and a pause after it.
const CLIENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(20);
/// Latency target of each query, milliseconds.
const LATENCY_MS: u64 = 2000;
/// Time between two looks at whether a front end is ready.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for an answer, and for a process that starts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two restarts.
const CALM: Duration = Duration::from_secs(1);

/// This delay is long enough for the balancer to notice.
const DELAY: &str = "limits.shutdown_delay_ms=1000";

/// All processes that are restarted, in this order.
const MEMBERS: [(&str, &str); 8] = [
    ("worker-1", "worker"),
    ("worker-2", "worker"),
    ("dispatcher", "dispatcher"),
    ("dispatcher-2", "dispatcher"),
    ("autoscaler", "autoscaler"),
    ("variant-gen", "variant-gen"),
    ("api", "api"),
    ("api-2", "api"),
];

/// A front end and its state in the balancer.
struct FrontEnd {
    address: SocketAddr,
    is_ready: AtomicBool,
}

/// The outcomes of the queries.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
    broken: AtomicU64,
    over: AtomicBool,
}

/// Restarts all processes under load and counts the outcomes.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut fleet = Fleet::start(bench)?;
    for (name, role) in MEMBERS {
        if fleet.member(name).is_err() {
            fleet.spawn(bench, name, role)?;
        }
    }
    for name in ["api", "api-2"] {
        fleet.restart(bench, name, "api", &[DELAY])?;
    }
    bench.register(fleet.api()?, "mlp")?;
    let query = format!(
        r#"{{"application":"mlp","targets":{{"latency_ms":{LATENCY_MS}}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    let query: Value = serde_json::from_str(&query)?;
    let mut front_ends = Vec::new();
    for name in ["api", "api-2"] {
        let server = fleet.member(name)?;
        server.ask("/v1/queries", &query)?;
        front_ends.push(FrontEnd {
            address: server.address,
            is_ready: AtomicBool::new(true),
        });
    }
    let tally = Tally::default();
    thread::scope(|scope| -> Result<()> {
        for front_end in &front_ends {
            scope.spawn(|| watch(front_end, &tally));
        }
        for at in 0..CLIENTS {
            let (front_ends, query, tally) = (&front_ends, &query, &tally);
            scope.spawn(move || client(at, front_ends, query, tally));
        }
        let restarted = restart_all(bench, &mut fleet, &front_ends);
        tally.over.store(true, Ordering::SeqCst);
        restarted
    })?;
    report_on(&tally, report);
    Ok(())
}

fn restart_all(bench: &Bench<'_>, fleet: &mut Fleet, front_ends: &[FrontEnd]) -> Result<()> {
    for round in 1..=ROUNDS {
        for (name, role) in MEMBERS {
            let settings: &[&str] = if role == "api" { &[DELAY] } else { &[] };
            fleet.restart(bench, name, role, settings)?;
            let begun = Instant::now();
            while !front_ends
                .iter()
                .all(|it| it.is_ready.load(Ordering::SeqCst))
            {
                ensure!(begun.elapsed() < PATIENCE, "not all front ends are ready");
                shell::pause(LOOK);
            }
            shell::pause(CALM);
        }
        shell::say(format!("round {round} of {ROUNDS}"));
    }
    Ok(())
}

/// Asks a front end again and again whether it is ready.
fn watch(front_end: &FrontEnd, tally: &Tally) {
    while !tally.over.load(Ordering::SeqCst) {
        let answer = Connection::open(front_end.address, LOOK * 10)
            .and_then(|mut connection| connection.get("/health/ready"));
        let is_ready = answer.is_ok_and(|answer| answer.status == 200);
        front_end.is_ready.store(is_ready, Ordering::SeqCst);
        shell::pause(LOOK);
    }
}

fn client(first: usize, front_ends: &[FrontEnd], query: &Value, tally: &Tally) {
    let mut open: BTreeMap<usize, Connection> = BTreeMap::new();
    let mut turn = first;
    while !tally.over.load(Ordering::SeqCst) {
        turn += 1;
        let at = turn % front_ends.len();
        let front_end = &front_ends[at];
        if !front_end.is_ready.load(Ordering::SeqCst) {
            open.remove(&at);
            shell::pause(Duration::from_millis(1));
            continue;
        }
        let connection = open
            .remove(&at)
            .map_or_else(|| Connection::open(front_end.address, PATIENCE), Ok);
        let answer = connection.and_then(|mut connection| {
            let answer = connection.post("/v1/queries", query)?;
            Ok((answer, connection))
        });
        match answer {
            Ok((answer, connection)) => {
                if !answer.closes {
                    open.insert(at, connection);
                }
                tally.count(answer.status, &answer.body);
            }
            Err(error) => {
                shell::say(format!("broken: {error:#}"));
                tally.broken.fetch_add(1, Ordering::SeqCst);
            }
        }
        shell::pause(PAUSE);
    }
}

fn report_on(tally: &Tally, report: &mut Report) {
    let answered = tally.answered.load(Ordering::SeqCst) as f64;
    let broken = tally.broken.load(Ordering::SeqCst) as f64;
    report.add(figure("restart_answered", answered, "count", None));
    report.add(figure("restart_broken_answers", broken, "count", Some("0")));
    let refused = tally.refused.lock().unwrap_or_else(PoisonError::into_inner);
    for (code, count) in refused.iter() {
        let metric = format!("restart_{code}");
        report.add(figure(&metric, *count as f64, "count", Some("0")));
    }
}

// === impl Tally ===

impl Tally {
    fn count(&self, status: u16, body: &[u8]) {
        if status == 200 {
            self.answered.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or("unknown").to_owned();
        let why = problem["detail"].as_str().unwrap_or_default();
        shell::say(format!("refused as {status} `{code}`: {why}"));
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry(code).or_default() += 1;
    }
}
