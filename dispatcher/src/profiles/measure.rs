//! One variant on one worker.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sextant_registry::Failure;
use sextant_rpc::{Infer, InferError, InferOutcome, Part, WorkerClient};
use sextant_types::{
    BatchLatency, Code, DataType, NamedTensor, Profile, Tensor, TensorSpec, Variant, fit,
};
use tokio::sync::oneshot;

use super::{ProfileConfig, Trouble};

/// Longest wait for a worker to have little to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// How long a batch may wait for its device.
const WINDOW: Duration = Duration::from_millis(500);

/// How many times as long as where it was registered a first batch may take: a worker must not take a
/// slower type of device for a disturbed one.
const UNKNOWN: f64 = 10.0;

/// Least and most runs of each batch size that count.
const RUNS: std::ops::RangeInclusive<usize> = 5..=200;

/// Profiles a variant that is loaded on `worker`. The time of a LOAD and the memory are left as they
/// were at registration: the one is learnt from every LOAD, the other is the engine's.
pub(super) async fn measure(
    variant: &Variant,
    worker: &WorkerClient,
    config: &ProfileConfig,
) -> Result<Profile, Trouble> {
    let mut batches = Vec::new();
    for rows in batch_sizes(variant) {
        wait_for_quiet(worker, config).await?;
        let times = times(variant, worker, (rows, config.budget)).await?;
        batches.push(summarise(rows, &times));
    }
    let line = fit::line(&batches);
    Ok(Profile {
        alpha_ms: line.alpha_ms,
        beta_ms: line.beta_ms,
        residual_ms: line.residual_ms,
        saturation_rps: fit::saturation_rps(&batches),
        batches,
        ..variant.profile.clone()
    })
}

/// A batch of zeros; `None` where a size beside that of the batch is unknown.
pub(super) fn inputs(variant: &Variant, rows: u32) -> Option<Vec<NamedTensor>> {
    let batched = variant.signature.batched;
    let input = |spec: &TensorSpec| {
        let size = |(axis, size): (usize, &Option<u64>)| match (axis, size) {
            (0, _) if batched => Some(rows as usize),
            (_, size) => usize::try_from((*size)?).ok(),
        };
        let shape: Option<Vec<usize>> = spec.shape.iter().enumerate().map(size).collect();
        Some(NamedTensor::new(&spec.name, zeros(spec.data_type, shape?)?))
    };
    variant.signature.inputs.iter().map(input).collect()
}

fn zeros(data_type: DataType, shape: Vec<usize>) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    match data_type.size() {
        Some(bytes) => {
            let zeros = Bytes::from(vec![0; count * bytes]);
            Tensor::from_bytes(data_type, shape, zeros).ok()
        }
        None => Tensor::from_strings(shape, vec![Bytes::new(); count]).ok(),
    }
}

/// 1, 2, 4 and so on, and the largest.
fn batch_sizes(variant: &Variant) -> Vec<u32> {
    let largest = u32::from(variant.spec.max_batch.max(1));
    if !variant.signature.batched {
        return vec![1];
    }
    let doubled = std::iter::successors(Some(1u32), |rows| rows.checked_mul(2));
    let mut sizes: Vec<u32> = doubled.take_while(|rows| *rows < largest).collect();
    sizes.push(largest);
    sizes
}

async fn wait_for_quiet(worker: &WorkerClient, config: &ProfileConfig) -> Result<(), Trouble> {
    let begun = Instant::now();
    while worker.info().utilization > config.quiet_utilization {
        if worker.is_draining() || begun.elapsed() > PATIENCE {
            return Err(Trouble::Busy);
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Times of runs in order of length, ms. The first run warms up and is not counted.
async fn times(
    variant: &Variant,
    worker: &WorkerClient,
    (rows, budget): (u32, Duration),
) -> Result<Vec<f64>, Trouble> {
    let unknown_ms = variant.profile.latency_ms(rows) * UNKNOWN;
    let mut last_ms = run(variant, worker, (rows, unknown_ms)).await?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < *RUNS.start() || (begun.elapsed() < budget && times.len() < *RUNS.end()) {
        last_ms = run(variant, worker, (rows, last_ms)).await?;
        times.push(last_ms);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Time of one batch from its inputs to its outputs, ms.
async fn run(
    variant: &Variant,
    worker: &WorkerClient,
    (rows, expected_ms): (u32, f64),
) -> Result<f64, Trouble> {
    let inputs = inputs(variant, rows).unwrap_or_default();
    let (done, answer) = oneshot::channel::<InferOutcome>();
    let now = Instant::now();
    worker.infer(Infer {
        variant: variant.id.clone(),
        parts: vec![Part::Inputs(inputs)],
        earliest: now,
        latest: Some(now + WINDOW),
        expected: Duration::try_from_secs_f64(expected_ms / 1e3).unwrap_or_default(),
        offline_rows: rows,
        done: Box::new(move |outcome| {
            // Who no longer waits has stopped to lead.
            done.send(outcome).ok();
        }),
    });
    let outcome = answer.await.unwrap_or(Err(InferError::ShuttingDown));
    let timings = outcome.map_err(|error| trouble(&error))?.timings;
    Ok((timings.input_us + timings.exec_us + timings.output_us) / 1e3)
}

fn trouble(error: &InferError) -> Trouble {
    let code = match error {
        InferError::TooLate | InferError::TooEarly => return Trouble::Busy,
        InferError::NotLoaded(_)
        | InferError::WeightsChanged(_)
        | InferError::Disconnected { .. }
        | InferError::ShuttingDown => Code::Unavailable,
        _ => Code::EngineFailed,
    };
    Trouble::Failed(Failure::new(code, error.to_string()))
}

/// `times` in order of length, at least one.
fn summarise(rows: u32, times: &[f64]) -> BatchLatency {
    let last = times.len().saturating_sub(1);
    let quantile = |share: f64| times.get((share * last as f64).round() as usize);
    BatchLatency {
        batch: rows,
        p50_ms: quantile(0.5).copied().unwrap_or_default(),
        p99_ms: quantile(0.99).copied().unwrap_or_default(),
        mean_ms: times.iter().sum::<f64>() / times.len().max(1) as f64,
        samples: u32::try_from(times.len()).unwrap_or(u32::MAX),
    }
}
