//! Measures the time from a change of the desired number to the message at a client like KEDA.
//!
//! `cargo run --release -p sextant-keda --example push`

#![expect(clippy::print_stdout, reason = "it prints what it has measured")]

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_keda::{
    KedaConfig, KedaServer, POOL,
    proto::{IsActiveResponse, ScaledObjectRef, external_scaler_client::ExternalScalerClient},
};
use sextant_metadata::Pool;
use sextant_types::DeviceTypeName;
use tokio::sync::watch;
use tonic::{Streaming, transport::Endpoint};

type Failure = Box<dyn Error + Send + Sync>;

/// Number of consecutive changes that are measured.
const CHANGES: u32 = 500;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    for streams in [1, 32, 256] {
        measure(streams).await?;
    }
    Ok(())
}

/// Prints the delay of the messages to `streams` streams.
async fn measure(streams: usize) -> Result<(), Failure> {
    let (desired, pools) = watch::channel(pools(0)?);
    let config = KedaConfig {
        listen: "127.0.0.1:0".parse()?,
        tls: None,
    };
    let server = KedaServer::bind(config, pools).await?;
    let endpoint = format!("http://{}", server.address());
    let serving = tokio::spawn(server.run(std::future::pending()));
    let mut open = Vec::with_capacity(streams);
    for _ in 0..streams {
        open.push(stream(&endpoint).await?);
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for change in 1..=CHANGES {
        let begun = Instant::now();
        desired.send_replace(self::pools(change % 2)?);
        for (at, stream) in open.iter_mut().enumerate() {
            stream.message().await?.ok_or("the stream has ended")?;
            if at == 0 {
                first.push(begun.elapsed());
            }
        }
        last.push(begun.elapsed());
    }
    serving.abort();
    print("first", streams, &mut first);
    print("all", streams, &mut last);
    Ok(())
}

async fn stream(endpoint: &str) -> Result<Streaming<IsActiveResponse>, Failure> {
    let channel = Endpoint::from_shared(endpoint.to_owned())?
        .connect()
        .await?;
    let mut client = ExternalScalerClient::new(channel);
    let object = ScaledObjectRef {
        name: "workers".to_owned(),
        namespace: "sextant".to_owned(),
        scaler_metadata: [(POOL.to_owned(), "cpu-8".to_owned())].into(),
    };
    let mut stream = client.stream_is_active(object).await?.into_inner();
    stream.message().await?;
    Ok(stream)
}

fn pools(desired: u32) -> Result<Arc<Vec<Pool>>, Failure> {
    Ok(Arc::new(vec![Pool {
        device_type: DeviceTypeName::new("cpu-8")?,
        desired,
        least: 0,
        most: 1,
        provider: Some("keda".into()),
        facts: None,
        trouble: None,
    }]))
}

fn print(what: &str, streams: usize, times: &mut [Duration]) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{streams:>4} streams, {what:<5}: median {:.2} ms, 99 % {:.2} ms, longest {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
