//! Two applications of equal weight share one device. One application's queries need 15 % of the device, the other's
//! more than the whole device. Each has one emulated model that takes 4 ms a row and 6 ms a batch of at most 16 rows,
//! which is 228 rows a second. Queries have a target of 100 ms.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::figure;
use crate::{
    bench::{
        autoscaling::{
            arrivals::{self, Arrival, Shape},
            clients::{self, Question, Tally, quantile},
        },
        bed::{Bench, numbers},
        report::Report,
    },
    server::Server,
    shell,
};

/// Queries a second that the device answers for the loud application alone, and the rate of the quiet application.
const CAPACITY: f64 = 240.0;
const QUIET: f64 = 36.0;
const TARGET_MS: f64 = 100.0;
/// Shortest time that is measured at once, s.
const LEAST_S: u64 = 15;
/// Connections. There are many, because queries without a target wait long.
const QUIET_CLIENTS: usize = 64;
const FLOOD_CLIENTS: usize = 3000;

/// A flood: its rate as a multiple of the capacity, and whether its queries have a target.
struct Flood {
    name: &'static str,
    times: f64,
    has_target: bool,
}

const FLOODS: [Flood; 5] = [
    Flood {
        name: "alone",
        times: 0.0,
        has_target: true,
    },
    Flood {
        name: "1.5x",
        times: 1.5,
        has_target: true,
    },
    Flood {
        name: "3x",
        times: 3.0,
        has_target: true,
    },
    Flood {
        name: "10x",
        times: 10.0,
        has_target: true,
    },
    Flood {
        name: "3x-without-target",
        times: 3.0,
        has_target: false,
    },
];

/// Sends queries to both applications under each flood.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let settings = [
        "variants.engines=emulated",
        "variants.max_batch=16",
        "variants.max_threads=1",
        "worker.cores=1",
    ];
    let server = bench.sextant("fairness", &settings)?;
    for application in ["quiet", "loud"] {
        bench.register_for(&server, application, "emulated")?;
        warm(&server, application)?;
    }
    let seconds = bench.arguments.seconds.max(LEAST_S) as f64;
    for flood in &FLOODS {
        let (quiet, loud) = ask(&server, flood, seconds, bench.arguments.seed);
        report_on(flood, seconds, (&quiet, &loud), report);
        // Queries that wait without a target are answered before the next flood.
        shell::pause(Duration::from_secs(1));
    }
    Ok(())
}

fn ask(server: &Server, flood: &Flood, seconds: f64, seed: u64) -> (Tally, Tally) {
    let begin = Instant::now() + Duration::from_millis(500);
    let run = |clients, application, target, rate, seed| {
        let questions = [question(application, target)];
        let arrivals = poisson(rate, seconds, seed);
        clients::run_with(clients, server.address, &questions, &arrivals, (begin, 0.0))
    };
    thread::scope(|scope| {
        let target = flood.has_target.then_some(TARGET_MS);
        let rate = flood.times * CAPACITY;
        let loud = scope.spawn(move || match rate > 0.0 {
            true => run(FLOOD_CLIENTS, "loud", target, rate, seed),
            false => Tally::default(),
        });
        let quiet = run(QUIET_CLIENTS, "quiet", Some(TARGET_MS), QUIET, seed + 1);
        (quiet, loud.join().expect("clients do not panic"))
    })
}

fn poisson(rate: f64, measured_s: f64, seed: u64) -> Vec<Arrival> {
    let shape = Shape {
        warm_up_s: 0.0,
        measured_s,
        range_rps: [rate, rate],
        seed,
    };
    arrivals::arrivals(&[1.0], &shape, &[1.0])
}

fn question(application: &str, target_ms: Option<f64>) -> Question {
    let targets = target_ms.map_or(String::new(), |ms| {
        format!(r#""targets":{{"latency_ms":{ms}}},"#)
    });
    let body = format!(
        r#"{{"application":"{application}",{targets}"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    Question {
        body: body.into_bytes(),
        target_ms: target_ms.unwrap_or(f64::INFINITY),
    }
}

/// Sends queries until the application's model is loaded.
fn warm(server: &Server, application: &str) -> Result<()> {
    let body: serde_json::Value = serde_json::from_slice(&question(application, None).body)?;
    server.connect()?.post("/v1/queries", &body)?.json()?;
    Ok(())
}

fn report_on(flood: &Flood, seconds: f64, (quiet, loud): (&Tally, &Tally), report: &mut Report) {
    let mut add = |metric: &str, value: f64, unit, goal| {
        report.add(figure(metric, value, unit, goal).of(flood.name));
    };
    let ratio = quiet.in_time as f64 / quiet.sent as f64;
    add("quiet_answered_ratio", ratio, "ratio", Some(">= 0.99"));
    add("quiet_p99_ms", quantile(&quiet.took_ms, 0.99), "ms", None);
    add(
        "quiet_lag_p99_ms",
        quantile(&quiet.lag_ms, 0.99),
        "ms",
        None,
    );
    let lost = |tally: &Tally| tally.refused.get("broken").copied().unwrap_or(0) as f64;
    add("broken_count", lost(quiet) + lost(loud), "count", Some("0"));
    if flood.times > 0.0 {
        let answered = (loud.in_time + loud.late) as f64;
        add("flood_answered_per_s", answered / seconds, "1/s", None);
        add("flood_sent_per_s", loud.sent as f64 / seconds, "1/s", None);
    }
}
