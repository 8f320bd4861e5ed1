//! Closed-loop load over gRPC, as `wrk` makes it over HTTP: one thread, each connection with one request under way.
//!
//! Usage: `load_grpc ADDRESS:PORT MODEL INPUT ELEMENTS CONNECTIONS SECONDS`. Sends one row of FP32 numbers over and
//! over and prints one line of JSON with the fields of `xtask/bench/wrk.lua`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

#[path = "grpc/messages.rs"]
mod messages;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use messages::{InferRequest, InferResponse, Tensor};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const PATH: &str = "/inference.GRPCInferenceService/ModelInfer";

/// What each call asks for: an answer as good as that of the file, in time.
const TARGETS: [(&str, &str); 2] = [
    ("x-slo-latency-ms", "50"),
    ("x-slo-min-relative-accuracy", "0.99"),
];

/// What one connection saw.
#[derive(Default)]
struct Tally {
    latencies_us: Vec<u32>,
    refused: u64,
    broken: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, model, input, elements, connections, seconds] = arguments.as_slice() else {
        anyhow::bail!("usage: load_grpc ADDRESS:PORT MODEL INPUT ELEMENTS CONNECTIONS SECONDS");
    };
    let request = request(model, input, elements.parse()?);
    let time = Duration::from_secs_f64(seconds.parse()?);
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    let connections: usize = connections.parse()?;
    let mut channels = Vec::with_capacity(connections);
    for _ in 0..connections {
        channels.push(endpoint.connect().await?);
    }
    let started = Instant::now();
    let end = started + time;
    let tasks = channels
        .into_iter()
        .map(|channel| tokio::spawn(ask_until(end, channel, request.clone())));
    let tasks: Vec<_> = tasks.collect();
    let mut all = Tally::default();
    for task in tasks {
        let tally = task.await?;
        all.latencies_us.extend(tally.latencies_us);
        all.refused += tally.refused;
        all.broken += tally.broken;
    }
    tell(all, started.elapsed())
}

fn request(model: &str, input: &str, elements: usize) -> InferRequest {
    let numbers = (0..elements).map(|index| (index % 17) as f32 / 17.0);
    let raw: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    InferRequest {
        model_name: model.to_owned(),
        inputs: vec![Tensor {
            name: input.to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, i64::try_from(elements).unwrap_or(i64::MAX)],
        }],
        raw_input_contents: vec![raw.into()],
    }
}

async fn ask_until(end: Instant, channel: Channel, request: InferRequest) -> Tally {
    let mut client = tonic::client::Grpc::new(channel);
    let mut tally = Tally::default();
    while Instant::now() < end {
        let started = Instant::now();
        if client.ready().await.is_err() {
            tally.broken += 1;
            break;
        }
        let codec: ProstCodec<InferRequest, InferResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(PATH);
        let mut call = Request::new(request.clone());
        for (name, value) in TARGETS {
            let value = MetadataValue::from_static(value);
            call.metadata_mut().insert(name, value);
        }
        match client.unary(call, path, codec).await {
            Ok(_) => {
                let micros = started.elapsed().as_micros();
                tally
                    .latencies_us
                    .push(u32::try_from(micros).unwrap_or(u32::MAX));
            }
            Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) => {
                tally.refused += 1;
            }
            Err(_) => tally.broken += 1,
        }
    }
    tally
}

fn tell(mut tally: Tally, took: Duration) -> Result<()> {
    ensure!(!tally.latencies_us.is_empty(), "no request was answered");
    tally.latencies_us.sort_unstable();
    let quantile = |share: f64| {
        let at = (share * tally.latencies_us.len() as f64) as usize;
        tally.latencies_us.get(at.min(tally.latencies_us.len() - 1))
    };
    let p50 = quantile(0.5).context("a median")?;
    let p99 = quantile(0.99).context("a percentile")?;
    println!(
        r#"{{"requests":{},"duration_us":{},"p50_us":{p50},"p99_us":{p99},"refused":{},"broken":{}}}"#,
        tally.latencies_us.len() as u64 + tally.refused,
        took.as_micros(),
        tally.refused,
        tally.broken,
    );
    Ok(())
}
