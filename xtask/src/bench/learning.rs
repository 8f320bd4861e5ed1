//! Versions, feedback and kept answers: the cost of a switch, the quality of verdicts, the rate of feedback that a
//! front end takes, and the gain of kept answers.
//!
//! *switch*: queries that fail or are late while versions are switched at 70 % load.
//! *judging* (simulated): how often an equal version is promoted, and how soon a worse one is rolled back.
//! *feedback*: rows a second in bodies of 1,000, and single posts a second from several connections, each row new.
//! *cache*: clients send inputs that come again, and feedback on each answer; the figure is their rate with a cache
//! over the rate without one (Clipper, NSDI 2017, section 4.2, reports 11,000 against 6,000 a second: 1.83).
//! *queries*: instructions of a query that uses no such feature, while other queries do and beside feedback.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Arguments,
    bed::{Bench, numbers},
    report::{Figure, Report},
    scheduler,
};
use crate::{http::Connection, provision, server::Server};

mod queries;
mod switch;

/// The parts that `--parts` may name.
pub const PARTS: [&str; 5] = ["switch", "judging", "feedback", "cache", "queries"];

/// `--quick` divides the numbers of queries, posts and bodies by this.
const QUICKER: usize = 4;

/// Rows of a query, and items of a body.
const ROWS: usize = 1000;

/// Connections that send at once.
const CONNECTIONS: usize = 8;

/// Single posts that each connection sends.
const POSTS: usize = 2000;

/// Bodies that are sent.
const BODIES: usize = 120;

/// Inputs that come again and again.
const INPUTS: usize = 100;

/// A query: its JSON, and the elements behind it.
type Binary = (String, Vec<u8>);

/// Models by name, with their input and its number of elements: one that computes next to nothing, and one that
/// computes.
const MODELS: [(&str, &str, usize); 2] =
    [("mlp", "pixels", 64), ("resnet18", "image", 3 * 224 * 224)];

const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("judging") {
        let tests = if arguments.quick { "300" } else { "1000" };
        scheduler::pass("sextant-judging", "trials", &[tests], report)?;
    }
    if !["switch", "feedback", "cache", "queries"]
        .iter()
        .any(|part| arguments.wants(part))
    {
        return Ok(());
    }
    let bench = Bench::prepare_without_wrk(arguments, provision::runtime()?, "bench-learning")?;
    if arguments.wants("switch") {
        switch::run(&bench, report)?;
    }
    if arguments.wants("feedback") {
        feedback(&bench, report)?;
    }
    if arguments.wants("cache") {
        cache(&bench, report)?;
    }
    if arguments.wants("queries") {
        queries::run(&bench, report)?;
    }
    Ok(())
}

/// With `--quick` a model is measured on one engine only.
fn settings(bench: &Bench<'_>) -> &'static [&'static str] {
    match bench.arguments.quick {
        true => &["variants.engines=ort", "variants.max_threads=1"],
        false => &[],
    }
}

/// Starts a service and registers a model of the folder, whose application takes feedback.
fn service(bench: &Bench<'_>, model: &str) -> Result<Server> {
    let server = bench.sextant(&format!("learning-{model}"), settings(bench))?;
    bench.register(&server, model)?;
    change(&server, model, &json!({"feedback": {}}))?;
    Ok(server)
}

fn change(server: &Server, application: &str, settings: &Value) -> Result<()> {
    let mut connection = Connection::open(server.address, PATIENCE)?;
    let path = format!("/v1/applications/{application}");
    let body = settings.to_string();
    let changed = connection.send("PATCH", &path, "application/json", body.as_bytes())?;
    changed.json().map(drop)
}

fn query(application: &str, (input, elements): (&str, usize), rows: usize, seed: usize) -> Value {
    let row = numbers(elements);
    let row: Vec<f64> = row.split(',').filter_map(|it| it.parse().ok()).collect();
    let data: Vec<f64> = (0..rows)
        .flat_map(|at| {
            let mut row = row.clone();
            row[0] = (seed * rows + at) as f64 / 1e6;
            row
        })
        .collect();
    json!({
        "application": application,
        "inputs": [{"name": input, "shape": [rows, elements], "datatype": "FP32", "data": data}],
    })
}

/// A query of one row whose elements stand behind its JSON, because reading numbers from text takes longer than some
/// models run.
fn binary_query(application: &str, (input, elements): (&str, usize), seed: usize) -> Binary {
    let row = numbers(elements);
    let mut row: Vec<f32> = row.split(',').filter_map(|it| it.parse().ok()).collect();
    row[0] = seed as f32 / 1e6;
    let shape = match elements {
        64 => vec![1, 64],
        _ => vec![1, 3, 224, 224],
    };
    let json = json!({
        "application": application,
        "inputs": [{"name": input, "shape": shape, "datatype": "FP32",
            "parameters": {"binary_data_size": 4 * elements}}],
    });
    let elements = row.into_iter().flat_map(f32::to_le_bytes);
    (json.to_string(), elements.collect())
}

fn binary_token(connection: &mut Connection, (json, elements): &Binary) -> Result<String> {
    token_of(
        &connection
            .post_binary("/v1/queries", json, elements)?
            .json()?,
    )
}

fn token(connection: &mut Connection, query: &Value) -> Result<String> {
    token_of(&connection.post("/v1/queries", query)?.json()?)
}

fn token_of(answer: &Value) -> Result<String> {
    let token = answer["feedback_token"].as_str();
    token.map(str::to_owned).context("the answer has no token")
}

/// Sends each list of bodies over a connection of its own; returns the bodies a second.
fn sent_per_s(address: SocketAddr, bodies: Vec<Vec<String>>) -> Result<f64> {
    let count: usize = bodies.iter().map(Vec::len).sum();
    let begun = Instant::now();
    let send = move |bodies: Vec<String>| -> Result<()> {
        let mut connection = Connection::open(address, PATIENCE)?;
        for body in bodies {
            let taken =
                connection.send("POST", "/v1/feedback", "application/json", body.as_bytes())?;
            let taken = taken.json()?;
            ensure!(
                taken["refused"] == 0 && taken["repeated"] == 0,
                "not all was taken: {taken}"
            );
        }
        Ok(())
    };
    let threads: Vec<_> = bodies
        .into_iter()
        .map(|of| thread::spawn(move || send(of)))
        .collect();
    for one in threads {
        one.join().ok().context("a connection panicked")??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn feedback(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let (model, input, elements) = MODELS[0];
    let server = service(bench, model)?;
    let mut connection = Connection::open(server.address, PATIENCE)?;
    let quicker = if bench.arguments.quick { QUICKER } else { 1 };
    let (bodies, posts) = (BODIES / quicker, POSTS / quicker);
    let tokens = 0..bodies + CONNECTIONS * posts / ROWS;
    let tokens: Vec<String> = tokens
        .map(|at| token(&mut connection, &query(model, (input, elements), ROWS, at)))
        .collect::<Result<_>>()?;
    let item = |token: &str, row: usize| json!({"token": token, "row": row, "label": row % 10});
    let body = |token: &String| {
        let items: Vec<Value> = (0..ROWS).map(|row| item(token, row)).collect();
        json!(items).to_string()
    };
    let (of_bodies, of_posts) = tokens.split_at(bodies);
    let bodies: Vec<String> = of_bodies.iter().map(body).collect();
    let each = bodies.len().div_ceil(4);
    let bodies: Vec<Vec<String>> = bodies.chunks(each).map(<[String]>::to_vec).collect();
    let bodies_per_s = sent_per_s(server.address, bodies)?;
    let items: Vec<String> = of_posts
        .iter()
        .flat_map(|token| (0..ROWS).map(|row| item(token, row).to_string()))
        .collect();
    let posts = items.chunks(posts).map(<[String]>::to_vec).collect();
    let posts_per_s = sent_per_s(server.address, posts)?;
    report.add(Figure {
        goal: Some(">= 50000"),
        ..figure("feedback_rows_per_s", bodies_per_s * ROWS as f64, "1/s")
    });
    report.add(Figure {
        goal: Some(">= 5000"),
        ..figure("feedback_posts_per_s", posts_per_s, "1/s")
    });
    Ok(())
}

/// Clients send inputs that come again and post feedback on each answer; returns the answers a second.
fn joined_per_s(server: &Server, queries: &[Binary], seconds: u64) -> Result<f64> {
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let address = server.address;
    let ask = move |of: usize, queries: Vec<Binary>| -> Result<u64> {
        let mut connection = Connection::open(address, PATIENCE)?;
        let mut said = 0;
        for query in queries
            .iter()
            .cycle()
            .skip(of * queries.len() / CONNECTIONS)
        {
            if Instant::now() >= until {
                break;
            }
            let token = binary_token(&mut connection, query)?;
            let item = json!({"token": token, "label": 1});
            connection.post("/v1/feedback", &item)?.json()?;
            said += 1;
        }
        Ok(said)
    };
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|of| {
            let queries = queries.to_vec();
            thread::spawn(move || ask(of, queries))
        })
        .collect();
    let mut said = 0;
    for one in threads {
        said += one.join().ok().context("a connection panicked")??;
    }
    Ok(said as f64 / begun.elapsed().as_secs_f64())
}

fn cache(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    for (model, input, elements) in MODELS {
        let server = service(bench, model)?;
        let queries = (0..INPUTS).map(|at| binary_query(model, (input, elements), at));
        let queries: Vec<Binary> = queries.collect();
        let seconds = bench.arguments.seconds;
        let without = joined_per_s(&server, &queries, seconds)?;
        change(
            &server,
            model,
            &json!({"resources": {"cache_bytes": 64 << 20}}),
        )?;
        // This fills the cache and lets the service find that the variant always gives the same answers.
        joined_per_s(&server, &queries, seconds)?;
        let with = joined_per_s(&server, &queries, seconds)?;
        for (metric, value) in [("without_cache", without), ("with_cache", with)] {
            let metric = format!("feedback_{metric}_per_s");
            report.add(figure(&metric, value, "1/s").of(model));
        }
        report.add(Figure {
            // A cache saves nothing for a model that computes next to nothing.
            goal: (elements > 64).then_some(">= 1.83"),
            ..figure("cache_feedback_ratio", with / without, "ratio").of(model)
        });
    }
    Ok(())
}

fn figure(metric: &str, value: f64, unit: &'static str) -> Figure {
    Figure::new("learning", metric, value, unit, None)
}
