//! The leading dispatcher is killed under load several times. Measures how long it takes until another one answers, and
//! whether a query gets no answer.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::figure;
use super::members::Fleet;
use crate::bench::bed::{Bench, numbers};
use crate::bench::report::Report;
use crate::http::Connection;
use crate::shell;

/// Number of times that the leader is killed.
const KILLS: usize = 5;
/// Clients, each with one query under way.
const CLIENTS: usize = 8;
/// Latency target of each query, milliseconds.
const LATENCY_MS: u64 = 2000;
/// Load before and after each kill.
const CALM: Duration = Duration::from_secs(3);

/// The outcomes of the queries.
#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    /// When each answer came, in order.
    answers: Mutex<Vec<Instant>>,
    over: AtomicBool,
}

/// Kills the leader and measures.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut fleet = Fleet::start(bench)?;
    fleet.spawn(bench, "worker-1", "worker")?;
    fleet.spawn(bench, "worker-2", "worker")?;
    let address = fleet.api()?.address;
    bench.register(fleet.api()?, "mlp")?;
    let query = format!(
        r#"{{"application":"mlp","targets":{{"latency_ms":{LATENCY_MS}}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    let query: Value = serde_json::from_str(&query)?;
    fleet.api()?.ask("/v1/queries", &query)?;
    let tally = Tally::default();
    let kills = std::thread::scope(|scope| -> Result<Vec<Instant>> {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(address, &query, &tally));
        }
        let kills = kill_leaders(bench, &mut fleet);
        tally.over.store(true, Ordering::SeqCst);
        kills
    })?;
    summarise(&tally, &kills, report);
    Ok(())
}

/// Kills the leader several times, each time with another dispatcher as standby.
fn kill_leaders(bench: &Bench<'_>, fleet: &mut Fleet) -> Result<Vec<Instant>> {
    let names = [
        "dispatcher",
        "dispatcher-2",
        "dispatcher-3",
        "dispatcher-4",
        "dispatcher-5",
        "dispatcher-6",
    ];
    let mut kills = Vec::new();
    for pair in names.windows(2).take(KILLS) {
        fleet.spawn(bench, pair[1], "dispatcher")?;
        shell::pause(CALM);
        kills.push(Instant::now());
        fleet.kill(pair[0])?;
        shell::pause(CALM);
    }
    Ok(kills)
}

fn client(address: SocketAddr, query: &Value, tally: &Tally) {
    let patience = Duration::from_secs(60);
    let mut connection = Connection::open(address, patience);
    while !tally.over.load(Ordering::SeqCst) {
        let Ok(open) = &mut connection else {
            connection = Connection::open(address, patience);
            continue;
        };
        tally.sent.fetch_add(1, Ordering::SeqCst);
        match open.post("/v1/queries", query) {
            Ok(response) if response.status == 200 => {
                tally.answered.fetch_add(1, Ordering::SeqCst);
                let mut answers = tally.answers.lock().unwrap_or_else(PoisonError::into_inner);
                answers.push(Instant::now());
            }
            Ok(_) => {
                tally.refused.fetch_add(1, Ordering::SeqCst);
                shell::pause(Duration::from_millis(5));
            }
            Err(_) => connection = Connection::open(address, patience),
        }
    }
}

fn summarise(tally: &Tally, kills: &[Instant], report: &mut Report) {
    let answers = tally.answers.lock().unwrap_or_else(PoisonError::into_inner);
    // Recovery is the time from the kill to the end of the longest pause between two answers that followed it.
    let recovery = |kill: &Instant| {
        let after = answers
            .windows(2)
            .filter(|pair| pair[1] > *kill && pair[0] < *kill + CALM);
        let longest = after.max_by_key(|pair| pair[1] - pair[0]);
        longest.map_or(f64::NAN, |pair| (pair[1] - *kill).as_secs_f64())
    };
    let recoveries: Vec<f64> = kills.iter().map(recovery).collect();
    let worst = recoveries.iter().copied().fold(0.0, f64::max);
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let (sent, answered, refused) = (
        count(&tally.sent),
        count(&tally.answered),
        count(&tally.refused),
    );
    report.add(figure("failover_s", worst, "s", Some("<= 3")));
    report.add(figure(
        "failover_median_s",
        crate::bench::median(recoveries),
        "s",
        None,
    ));
    report.add(figure("failover_sent", sent as f64, "count", None));
    report.add(figure("failover_refused", refused as f64, "count", None));
    let unanswered = sent.saturating_sub(answered + refused);
    report.add(figure(
        "failover_unanswered",
        unanswered as f64,
        "count",
        Some("0"),
    ));
}
