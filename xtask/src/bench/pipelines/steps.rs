//! What a step of a pipeline adds to the latency of a query beside the run of its model, in one process and in a fleet.
//!
//! A model whose answer has the shape of its input is the only step of one pipeline and every step of another. One
//! client queries both in turns. The overhead of a step is the time that each further step takes, less a run of the
//! model.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    bench::{
        Arguments,
        bed::{Bench, numbers},
        fleet::members::{Fleet, alone},
        load::Load,
        main_job::warm,
        median,
        report::{Figure, Report},
    },
    models, provision,
    server::Server,
};

const MODEL: &str = "chain";
/// Elements of the model's input and of its answer.
const ELEMENTS: usize = 64;
/// Steps of the longer pipeline; the shorter one has one.
const LONG: usize = 6;
/// Explained queries over which the median run is taken.
const EXPLAINED: usize = 200;

/// The measurements of one service.
struct StepFigures {
    /// Median latencies of the two pipelines, by turn, ms.
    short_ms: Vec<f64>,
    long_ms: Vec<f64>,
    /// The time of a run of the model, us.
    run_us: f64,
}

/// Measures one process, then a fleet.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let bench = Bench::prepare(arguments, provision::stores()?, "bench-pipelines")?;
    models::write(&bench.provisioned.python, &[MODEL])?;
    let service = alone(&bench)?;
    tell(report, ("one process", "<= 50"), &ask(&bench, &service)?);
    drop(service);
    let mut fleet = Fleet::start(&bench)?;
    fleet.spawn(&bench, "worker-1", "worker")?;
    tell(report, ("fleet", "<= 400"), &ask(&bench, fleet.api()?)?);
    Ok(())
}

fn ask(bench: &Bench<'_>, server: &Server) -> Result<StepFigures> {
    bench.register(server, MODEL)?;
    warm(server, MODEL)?;
    let data = numbers(ELEMENTS);
    let query = |application: &str| {
        format!(
            r#"{{"application":"{application}","targets":{{"latency_ms":1000}},"inputs":[{{"name":"values","shape":[1,{ELEMENTS}],"datatype":"FP32","data":[{data}]}}]}}"#
        )
    };
    let mut shown = StepFigures {
        short_ms: Vec::new(),
        long_ms: Vec::new(),
        run_us: run_us(server, &serde_json::from_str(&query(MODEL))?)?,
    };
    let mut bodies = Vec::new();
    for steps in [1, LONG] {
        let name = format!("{MODEL}-{steps}");
        server.ask("/v1/pipelines", &pipeline(&name, steps))?;
        bodies.push(bench.write(&format!("{name}.json"), &query(&name))?);
    }
    for _ in 0..bench.arguments.repetitions {
        for (body, into) in bodies.iter().zip([&mut shown.short_ms, &mut shown.long_ms]) {
            let load = Load {
                address: server.address,
                path: "/v1/queries",
                body,
                connections: 1,
                seconds: bench.arguments.seconds,
            };
            into.push(load.run()?.p50_ms);
        }
    }
    Ok(shown)
}

/// A chain of `steps` steps, all of the same model.
fn pipeline(name: &str, steps: usize) -> Value {
    let step = |at: usize| {
        let from = match at {
            0 => "values".to_owned(),
            _ => format!("step{}.scores", at - 1),
        };
        json!({"name": format!("step{at}"), "application": MODEL, "inputs": {"values": from}})
    };
    json!({
        "name": name,
        "inputs": [{"name": "values", "datatype": "FP32", "shape": [1, ELEMENTS]}],
        "steps": (0..steps).map(step).collect::<Vec<_>>(),
        "outputs": {"scores": format!("step{}.scores", steps - 1)},
    })
}

/// The median time that the worker takes to run a query for the model itself, us.
fn run_us(server: &Server, query: &Value) -> Result<f64> {
    let mut query = query.clone();
    query["explain"] = json!(true);
    let mut runs = Vec::new();
    for _ in 0..EXPLAINED {
        let answer = server.ask("/v1/queries", &query)?;
        let id = answer["id"].as_str().context("an answer has an id")?;
        let explained = server
            .connect()?
            .get(&format!("/v1/queries/{id}"))?
            .json()?;
        let run = explained["budget"]["run_us"].as_f64();
        runs.push(run.with_context(|| format!("`{id}` has no run"))?);
    }
    Ok(median(runs))
}

fn tell(report: &mut Report, (service, goal): (&str, &'static str), shown: &StepFigures) {
    let turns = shown.long_ms.iter().zip(&shown.short_ms);
    let added = turns.map(|(long, short)| 1e3 * (long - short) / (LONG - 1) as f64);
    let added_us = median(added.collect());
    let overhead = added_us - shown.run_us;
    for (metric, value, goal) in [
        ("pipeline_step_added_us", added_us, None),
        ("pipeline_step_run_us", shown.run_us, None),
        ("pipeline_step_overhead_us", overhead, Some(goal)),
    ] {
        report.add(Figure::new("pipelines", metric, value, "us", goal).of(service));
    }
}
