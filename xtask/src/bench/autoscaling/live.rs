//! A fleet of emulated devices that follows a compressed trace, and its simulation.
//!
//! The service starts and ends real processes, each a worker with one emulated device, over a real Redis. Queries come
//! open loop. Afterwards the fleet simulation gets the same queries, the measured profiles, start times and LOAD times,
//! and the same settings of the autoscaler.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    super::{Arguments, report::Figure, report::Report},
    arrivals::{self, Arrival, Shape},
    clients::{self, Tally, quantile},
    service::{self, APPLICATIONS, POOLS, Service},
    simulated::{self, Measurements},
    watch::{self, WatchLog},
};
use crate::{paths, shell};

/// Queries a second at the trace's lowest and at its highest rate.
const RANGE_RPS: [f64; 2] = [10.0, 200.0];

/// Time at the trace's first rate before measurements count, s, because the autoscaler uses the last minute.
const WARM_UP_S: f64 = 60.0;

/// A run in which one in a hundred queries was sent later than this, ms, is not valid.
const MOST_LAG_MS: f64 = 50.0;

/// Time between the last preparation and the first query.
const LEAD: Duration = Duration::from_millis(500);

/// Starts the service, sends and simulates the queries, and reports both.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    ensure!(arguments.minutes > 0.0, "`--minutes` must be above 0");
    let shape = Shape {
        warm_up_s: WARM_UP_S,
        measured_s: arguments.minutes * 60.0,
        range_rps: RANGE_RPS,
        seed: arguments.seed,
    };
    let trace = paths::root().join("simulator/data/twitter_minutes.csv");
    let rates = arrivals::rates(&std::fs::read_to_string(trace)?)?;
    let shares = APPLICATIONS.map(|of| of.share);
    let arrivals = arrivals::arrivals(&rates, &shape, &shares);
    let service = service::start()?;
    report.version("sextant", service.version()?);
    shell::say(format!(
        "{} queries in {:.0} s, seed {}",
        arrivals.len(),
        shape.warm_up_s + shape.measured_s,
        shape.seed
    ));
    let live = Live::record(&service, &arrivals, &shape)?;
    live.write_samples(&service)?;
    live.write_queries(&service)?;
    let measured = live.measured();
    let experiment = simulated::write(&service, &arrivals, &shape, &measured)?;
    let simulated = simulated::play(&service.binary, &experiment)?;
    live.report(&measured, report);
    compare(&live, &simulated, report)
}

/// The results of the live run.
struct Live {
    tally: Tally,
    watched: WatchLog,
    /// When queries began, milliseconds since 1970.
    begin_ms: u64,
    /// The span in which queries and machines count, milliseconds since 1970.
    span_ms: (u64, u64),
}

impl Live {
    fn record(service: &Service, arrivals: &[Arrival], shape: &Shape) -> Result<Self> {
        let stop = AtomicBool::new(false);
        let begin = Instant::now() + LEAD;
        let begin_ms = watch::now_ms() + LEAD.as_millis() as u64;
        let from_ms = begin_ms + (shape.warm_up_s * 1e3) as u64;
        let until_ms = from_ms + (shape.measured_s * 1e3) as u64;
        let (tally, watched) = thread::scope(|scope| {
            let watcher = scope.spawn(|| watch::watch(service, &stop));
            let questions = service::questions();
            let address = service.server.address;
            let tally = clients::run(address, &questions, arrivals, (begin, shape.warm_up_s));
            // Machines are paid until the end of the span, even when no query comes any more.
            let left_ms = until_ms.saturating_sub(watch::now_ms());
            shell::pause(Duration::from_millis(left_ms));
            stop.store(true, Ordering::Relaxed);
            (tally, watcher.join().expect("the watcher does not panic"))
        });
        Ok(Self {
            tally,
            watched: watched?,
            begin_ms,
            span_ms: (from_ms, until_ms),
        })
    }

    /// Means of the observed times.
    fn measured(&self) -> Measurements {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let start = |pool: usize| match &self.watched.starts_s(pool, self.begin_ms)[..] {
            [] => service::ASSUMED_START_S.into(),
            seen => mean(seen),
        };
        let mut loads: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for ((variant, _), took) in &self.watched.loads_ms {
            loads.entry(variant.clone()).or_default().extend(took);
        }
        let loads = loads.into_iter();
        Measurements {
            start_s: std::array::from_fn(start),
            load_ms: loads.map(|(of, took)| (of, mean(&took))).collect(),
        }
    }

    /// Writes the numbers of machines over time, as `devices.csv` in the data folder.
    fn write_samples(&self, service: &Service) -> Result<()> {
        let mut text = "second".to_owned();
        for pool in &POOLS {
            let name = pool.name;
            write!(text, ",{name}_staying,{name}_up,{name}_wanted")?;
        }
        for of in &self.watched.samples {
            let at_s = (of.at_ms as f64 - self.begin_ms as f64) / 1e3;
            write!(text, "\n{at_s:.2}")?;
            for pool in 0..POOLS.len() {
                let (staying, up, desired) = (of.staying[pool], of.up[pool], of.desired[pool]);
                write!(text, ",{staying},{up},{desired}")?;
            }
        }
        text.push('\n');
        std::fs::write(service.data.join("devices.csv"), text)?;
        Ok(())
    }

    /// Writes every query that counts, as `answers.csv` in the data folder.
    fn write_queries(&self, service: &Service) -> Result<()> {
        let lines = self.tally.lines.iter().map(|(_, line)| line.as_str());
        let head = ["due_s,application,lag_ms,took_ms,end"].into_iter();
        let text = head.chain(lines).collect::<Vec<_>>().join("\n");
        std::fs::write(service.data.join("answers.csv"), text + "\n")?;
        Ok(())
    }

    fn device_hours(&self, pool: usize) -> f64 {
        self.watched.hours(pool, self.span_ms)
    }

    /// Reports the figures of the live run alone.
    fn report(&self, measured: &Measurements, report: &mut Report) {
        let tally = &self.tally;
        let mut add = |metric: &str, value: f64, unit| {
            report.add(Figure::new("autoscaling", metric, value, unit, None).of("live"));
        };
        add("lag_p99_ms", quantile(&tally.lag_ms, 0.99), "ms");
        add("lag_max_ms", quantile(&tally.lag_ms, 1.0), "ms");
        add("answer_p50_ms", quantile(&tally.took_ms, 0.5), "ms");
        add("answer_p99_ms", quantile(&tally.took_ms, 0.99), "ms");
        add("late_count", tally.late as f64, "count");
        for (code, count) in &tally.refused {
            add(&format!("{code}_count"), *count as f64, "count");
        }
        for (at, (sent, bad)) in &tally.applications {
            let metric = format!("{}_violation_percent", APPLICATIONS[*at].name);
            add(&metric, 100.0 * *bad as f64 / *sent as f64, "percent");
        }
        for (pool, start_s) in POOLS.iter().zip(measured.start_s) {
            add(&format!("{}_start_s", pool.name), start_s, "s");
        }
        if quantile(&tally.lag_ms, 0.99) > MOST_LAG_MS {
            shell::say(format!(
                "void: one query in a hundred was sent more than {MOST_LAG_MS} ms late; the machine \
                 has too much else to do"
            ));
        }
    }
}

/// Reports the figures of both runs and their differences.
fn compare(live: &Live, simulated: &BTreeMap<String, f64>, report: &mut Report) -> Result<()> {
    let figure = |name: &str| {
        let found = simulated.get(name).copied();
        found.with_context(|| format!("the simulation has no `{name}`"))
    };
    let mut both = |metric: &str, ours: f64, theirs: f64, unit| {
        for (cell, value) in [("live", ours), ("simulated", theirs)] {
            report.add(Figure::new("autoscaling", metric, value, unit, None).of(cell));
        }
    };
    let violations = (live.tally.violation_percent(), figure("violation_percent")?);
    both(
        "sent_count",
        live.tally.sent as f64,
        figure("sent_count")?,
        "count",
    );
    both("violation_percent", violations.0, violations.1, "percent");
    for (at, pool) in POOLS.iter().enumerate() {
        let metric = format!("{}_device_hours", pool.name);
        both(&metric, live.device_hours(at), figure(&metric)?, "hours");
    }
    let hours: f64 = (0..POOLS.len()).map(|at| live.device_hours(at)).sum();
    let hours = (hours, figure("device_hours")?);
    both("device_hours", hours.0, hours.1, "hours");
    let apart = (violations.0 - violations.1).abs();
    let far = 100.0 * (hours.0 - hours.1).abs() / hours.0.max(f64::MIN_POSITIVE);
    for (metric, value, unit, goal) in [
        ("violation_difference_points", apart, "points", "<= 1"),
        ("device_hours_difference_percent", far, "percent", "<= 5"),
    ] {
        report.add(Figure::new("autoscaling", metric, value, unit, Some(goal)));
    }
    Ok(())
}
