//! The cost of an offline job for online queries (INFaaS, figure 8). ResNet-18 runs on the cores of this machine and
//! gets 3 to 8 queries a second with a target of half a second, with and without a job beside them. The job has more
//! images than can be answered meanwhile. Both ask for the accuracy of the model as it was trained.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{cell, figure, warm};
use crate::{
    bench::{
        autoscaling::{
            arrivals::{self, Shape},
            clients::{self, Question, Tally, quantile},
        },
        bed::{Bench, numbers},
        median,
        report::Report,
    },
    server::Server,
    shell,
};

const TARGET_MS: f64 = 500.0;
const IMAGE: [usize; 3] = [3, 224, 224];
/// Images in a file, and the number of files.
const IMAGES: usize = 500;
const FILES: usize = 8;
const MIN_ACCURACY: f64 = 0.8;
/// Lowest and highest rate of online queries, queries a second.
const RANGE_RPS: [f64; 2] = [3.0, 8.0];
/// The rates rise and fall twice, as in the paper.
const RATES: [f64; 9] = [3.0, 4.0, 8.0, 4.0, 3.0, 4.0, 8.0, 4.0, 3.0];
/// Shortest time that is measured at once, s.
const LEAST_S: u64 = 60;

/// Measures online queries alone and beside a job in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let server = bench.sextant("offline", &[])?;
    bench.register(&server, "resnet18")?;
    warm(&server, "resnet18")?;
    upload(&server)?;
    let questions = [question()];
    let (mut alone, mut beside, mut ratios, mut images) = (vec![], vec![], vec![], vec![]);
    for turn in 0..bench.arguments.repetitions as u64 {
        let measured_s = bench.arguments.seconds.max(LEAST_S) as f64;
        let ask = || ask(&server, &questions, (measured_s, turn));
        let quiet = ask();
        let job = submit(&server, turn)?;
        let busy = ask();
        images.push(end(&server, &job)?);
        let p99 = |tally: &Tally| quantile(&tally.took_ms, 0.99);
        ratios.push(p99(&busy) / p99(&quiet));
        alone.push(quiet);
        beside.push(busy);
    }
    for (name, tallies) in [("alone", &alone), ("beside-job", &beside)] {
        let middle = |of: &dyn Fn(&Tally) -> f64| median(tallies.iter().map(of).collect());
        for (metric, share) in [("online_p50_ms", 0.5), ("online_p99_ms", 0.99)] {
            let value = middle(&|tally| quantile(&tally.took_ms, share));
            report.add(cell(name, metric, value, "ms"));
        }
        let value = middle(&Tally::violation_percent);
        report.add(cell(name, "online_violation_percent", value, "%"));
    }
    let goal = Some("<= 1.05");
    let ratio = median(ratios);
    report.add(figure("online_p99_with_job_ratio", ratio, "ratio", goal));
    report.add(figure("job_images", median(images), "images", None));
    Ok(())
}

/// Sends the online queries of one phase.
fn ask(server: &Server, questions: &[Question], (measured_s, seed): (f64, u64)) -> Tally {
    let shape = Shape {
        warm_up_s: 0.0,
        measured_s,
        range_rps: RANGE_RPS,
        seed,
    };
    let arrivals = arrivals::arrivals(&RATES, &shape, &[1.0]);
    clients::run(server.address, questions, &arrivals, (Instant::now(), 0.0))
}

fn question() -> Question {
    let pixels = IMAGE.iter().product();
    let body = format!(
        r#"{{"application":"resnet18","targets":{{"latency_ms":{TARGET_MS},"min_accuracy":{MIN_ACCURACY}}},"inputs":[{{"name":"image","shape":[1,3,224,224],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(pixels)
    );
    Question {
        body: body.into_bytes(),
        target_ms: TARGET_MS,
    }
}

/// Stores the images of the jobs.
fn upload(server: &Server) -> Result<()> {
    let [channels, height, width] = IMAGE;
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({IMAGES}, {channels}, {height}, {width}), }}"
    );
    // The header is padded so that the preamble of ten bytes and the header fill whole units of 64 bytes.
    let padding = 63 - (10 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.write_all(&u16::try_from(header.len())?.to_le_bytes())?;
    file.extend_from_slice(header.as_bytes());
    let values = IMAGES * channels * height * width;
    file.extend((0..values).flat_map(|at| ((at % 251) as f32 / 251.0).to_le_bytes()));
    let kind = "application/octet-stream";
    for number in 0..FILES {
        let path = format!("/v1/artefacts/images/{number}.npy");
        server.connect()?.send("PUT", &path, kind, &file)?.json()?;
    }
    Ok(())
}

/// Starts a job over all images and returns its name.
fn submit(server: &Server, turn: u64) -> Result<String> {
    let id = format!("offline-{turn}");
    let output = format!("answers-{turn}/");
    let body = json!({
        "id": id, "model": "resnet18", "input": "images/", "output": output,
        "targets": {"min_accuracy": MIN_ACCURACY},
    });
    server.connect()?.post("/v1/jobs", &body)?.json()?;
    Ok(id)
}

/// Ends a job and returns how many images it had answered.
fn end(server: &Server, id: &str) -> Result<f64> {
    let path = format!("/v1/jobs/{id}");
    let mut job = server.connect()?.get(&path)?.json()?;
    let done = job["progress"]["done"].as_f64().unwrap_or(0.0);
    if job["status"] != "succeeded" {
        server
            .connect()?
            .send("DELETE", &path, "application/json", &[])?;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_over(&job) && Instant::now() < deadline {
        shell::pause(Duration::from_millis(100));
        job = server.connect()?.get(&path)?.json()?;
    }
    Ok(done)
}

fn is_over(job: &Value) -> bool {
    ["succeeded", "failed", "cancelled"]
        .iter()
        .any(|status| job["status"] == *status)
}
