//! The cost of a query, a registration and a start beside many applications, of which one gets queries.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{cell, figure, warm};
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::Load;
use crate::bench::median;
use crate::bench::report::Report;
use crate::server::Server;
use crate::shell;

/// The smaller number of applications with which the cost is compared.
const FEW: usize = 10;

/// Registrations over which the median is taken, at both ends.
const AROUND: usize = 10;

/// One engine and little effort, so that many small models can be registered in acceptable time.
const SETTINGS: [&str; 4] = [
    "variants.engines=ort",
    "variants.effort=quick",
    "variants.max_batch=4",
    "variants.max_threads=1",
];

/// Connections of the load.
const CONNECTIONS: usize = 64;

/// Longest wait for the loads that follow a start.
const SETTLED: Duration = Duration::from_secs(120);

/// Registers the same small model for few applications in one service and for many in another, then sends queries to
/// the first application of both in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let many = bench.arguments.applications.max(FEW + AROUND);
    let small = bench.sextant("growth-few", &SETTINGS)?;
    register(bench, &small, FEW)?;
    let large = bench.sextant("growth-many", &SETTINGS)?;
    let took = register(bench, &large, many)?;
    let first = median(took[FEW - AROUND / 2..FEW + AROUND / 2].to_vec());
    let last = median(took[many - AROUND..].to_vec());
    report.add(figure("registration_10th_s", first, "s", None));
    report.add(figure(&format!("registration_{many}th_s"), last, "s", None));
    let goal = Some("<= 1.15");
    report.add(figure(
        "registration_growth_ratio",
        last / first,
        "ratio",
        goal,
    ));
    drop(large);
    let begun = Instant::now();
    let large = bench.sextant("growth-many", &SETTINGS)?;
    let metric = format!("start_{many}_applications_s");
    let started = begun.elapsed().as_secs_f64();
    report.add(figure(&metric, started, "s", Some("<= 1")));
    queries(bench, (&small, &large), many, report)
}

/// Registers a model for each of `count` applications; returns how long each took, from its command to its last
/// variant, s.
fn register(bench: &Bench<'_>, server: &Server, count: usize) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(count);
    for number in 0..count {
        let begun = Instant::now();
        bench.register_for(server, &name(number), "mlp")?;
        took.push(begun.elapsed().as_secs_f64());
    }
    Ok(took)
}

fn name(number: usize) -> String {
    format!("application-{number}")
}

/// Compares the processor time of a query beside few applications and beside many.
fn queries(
    bench: &Bench<'_>,
    (small, large): (&Server, &Server),
    many: usize,
    report: &mut Report,
) -> Result<()> {
    let pixels = numbers(64);
    let query = format!(
        r#"{{"application":"{}","targets":{{"latency_ms":50}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{pixels}]}}]}}"#,
        name(0)
    );
    let body = bench.write("growth.json", &query)?;
    for server in [small, large] {
        warm(server, &name(0))?;
        settle(server)?;
    }
    let (mut few_us, mut many_us, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.arguments.repetitions {
        let few = query_us(bench, small, &body)?;
        let beside_many = query_us(bench, large, &body)?;
        few_us.push(few);
        many_us.push(beside_many);
        ratios.push(beside_many / few);
    }
    for (count, us) in [(FEW, few_us), (many, many_us)] {
        let of = format!("{count} applications");
        report.add(cell(&of, "growth_query_cpu_us", median(us), "us"));
    }
    let metric = format!("growth_{many}_applications_ratio");
    report.add(figure(&metric, median(ratios), "ratio", Some("<= 1.10")));
    Ok(())
}

/// Processor time of a service for a query, microseconds.
fn query_us(bench: &Bench<'_>, server: &Server, body: &Path) -> Result<f64> {
    let load = Load {
        address: server.address,
        path: "/v1/queries",
        body,
        connections: CONNECTIONS,
        seconds: bench.arguments.seconds,
    };
    load.cpu_us(server)
}

/// Waits until a service that gets no queries is nearly idle, because the loads after its start have ended.
fn settle(server: &Server) -> Result<()> {
    let look = Duration::from_secs(1);
    let deadline = Instant::now() + SETTLED;
    loop {
        let before = server.cpu_s()?;
        shell::pause(look);
        let share = (server.cpu_s()? - before) / look.as_secs_f64();
        if share < 0.1 || Instant::now() > deadline {
            return Ok(());
        }
    }
}
