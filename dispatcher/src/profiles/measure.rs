//! Measures one variant on one worker.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sextant_registry::Failure;
use sextant_rpc::{Infer, InferError, InferOutcome, Part, WorkerClient};
use sextant_types::{
    BatchLatency, Code, ConcurrentRun, DataType, Fill, NamedTensor, Profile, ShapeProfile, Sizes,
    Tensor, TensorSpec, Texts, Variant, fit,
};
use tokio::sync::oneshot;

use super::{ProfileConfig, Trouble};

/// The longest wait until a worker has little to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at the worker's load.
const LOOK: Duration = Duration::from_millis(100);

/// How long a batch may wait for its device.
const WINDOW: Duration = Duration::from_millis(500);

/// The factor by which a first batch may take longer than where it was registered. A worker must not take a slower type
/// of device for a disturbed one.
const UNKNOWN: f64 = 10.0;

/// The least and the most runs of each batch size that are counted.
const RUNS: std::ops::RangeInclusive<usize> = 5..=200;

/// A variant on a worker.
struct Subject<'a> {
    variant: &'a Variant,
    worker: &'a WorkerClient,
    config: &'a ProfileConfig,
}

/// Profiles a variant that is loaded on `worker`. The load time and the memory remain those of the registration: the
/// load time is learnt from every LOAD, and the memory is determined by the engine.
pub(super) async fn measure(
    variant: &Variant,
    worker: &WorkerClient,
    config: &ProfileConfig,
) -> Result<Profile, Trouble> {
    let subject = Subject {
        variant,
        worker,
        config,
    };
    let registered = &variant.profile;
    let sizes = batch_sizes(variant).into_iter();
    let points = sizes.map(|rows| (rows, registered.latency_ms(rows)));
    let batches = subject.sweep(&registered.sizes.dims, points).await?;
    let mut shapes = Vec::with_capacity(registered.sizes.shapes.len());
    for shape in &registered.sizes.shapes {
        let points = shape.batches.iter();
        let points = points.map(|point| (point.batch, point.p50_ms));
        shapes.push(ShapeProfile {
            batches: subject.sweep(&shape.dims, points).await?,
            dims: shape.dims.clone(),
        });
    }
    let mut concurrent = Vec::with_capacity(registered.concurrent.len());
    for of in &registered.concurrent {
        concurrent.extend(subject.side_by_side(of.running, of.mean_ms).await?);
    }
    let line = fit::line(&batches);
    let mut profile = Profile {
        concurrent,
        sizes: Sizes {
            shapes,
            ..registered.sizes.clone()
        },
        alpha_ms: line.alpha_ms,
        beta_ms: line.beta_ms,
        residual_ms: line.residual_ms,
        saturation_rps: fit::saturation_rps(&batches),
        batches,
        ..variant.profile.clone()
    };
    if !variant.shares_batches() {
        profile.run_alone();
    }
    Ok(profile)
}

/// Makes a batch of zeros, with ones in a mask. Returns `None` if a size other than that of the batch is unknown.
pub(super) fn inputs(variant: &Variant, rows: u32, dims: &[u64]) -> Option<Vec<NamedTensor>> {
    let signature = &variant.signature;
    if signature.dynamic_axes().count() != dims.len() {
        return None;
    }
    let mask = variant
        .padding
        .as_ref()
        .map(|padding| padding.mask.as_str());
    let inputs = signature.inputs.iter().enumerate();
    let input = |(at, spec): (usize, &TensorSpec)| {
        let shape = signature.shape_with(at, rows.into(), dims);
        let value = if mask == Some(spec.name.as_str()) {
            1.0
        } else {
            0.0
        };
        let none = shape.iter().map(|_| 0).collect();
        let empty = zeros(spec.data_type, none)?;
        let full = empty.resized(&shape, Fill::Value(value)).ok()?;
        Some(NamedTensor::new(&spec.name, full))
    };
    inputs.map(input).collect()
}

fn zeros(data_type: DataType, shape: Vec<usize>) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    match data_type.size() {
        Some(bytes) => {
            let zeros = Bytes::from(vec![0; count * bytes]);
            Tensor::from_bytes(data_type, shape, zeros).ok()
        }
        None => Tensor::from_texts(shape, Texts::empty(count)).ok(),
    }
}

/// The batch sizes 1, 2, 4 and so on, and the largest.
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

impl Subject<'_> {
    /// Measures batches of these rows. Each comes with the time that it took where the variant was registered, ms.
    async fn sweep(
        &self,
        dims: &[u64],
        points: impl Iterator<Item = (u32, f64)>,
    ) -> Result<Vec<BatchLatency>, Trouble> {
        let mut batches = Vec::new();
        for (rows, registered_ms) in points {
            wait_for_quiet(self.worker, self.config).await?;
            let inputs = inputs(self.variant, rows, dims).unwrap_or_default();
            let times = self.times(rows, &inputs, registered_ms).await?;
            batches.push(summarise(rows, &times));
        }
        Ok(batches)
    }

    /// Measures lone queries side by side. Each number of them comes with the time that it took where the variant was
    /// registered, ms.
    async fn side_by_side(
        &self,
        running: u16,
        registered_ms: f64,
    ) -> Result<Option<ConcurrentRun>, Trouble> {
        wait_for_quiet(self.worker, self.config).await?;
        let inputs = inputs(self.variant, 1, &self.variant.profile.sizes.dims).unwrap_or_default();
        let expected_ms = registered_ms * UNKNOWN;
        let mut times = Vec::new();
        for _ in 0..*RUNS.start() {
            let runs = (0..running).map(|_| self.run(1, &inputs, expected_ms));
            for took in futures::future::join_all(runs).await {
                times.push(took?);
            }
        }
        Ok(ConcurrentRun::of(running, &times))
    }

    /// The times of the runs in ascending order, ms. The first run warms up and is not counted.
    async fn times(
        &self,
        rows: u32,
        inputs: &[NamedTensor],
        registered_ms: f64,
    ) -> Result<Vec<f64>, Trouble> {
        let mut last_ms = self.run(rows, inputs, registered_ms * UNKNOWN).await?;
        let (begun, budget, mut times) = (Instant::now(), self.config.budget, Vec::new());
        while times.len() < *RUNS.start() || (begun.elapsed() < budget && times.len() < *RUNS.end())
        {
            last_ms = self.run(rows, inputs, last_ms).await?;
            times.push(last_ms);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Time of one batch from its inputs to its outputs, ms.
    async fn run(
        &self,
        rows: u32,
        inputs: &[NamedTensor],
        expected_ms: f64,
    ) -> Result<f64, Trouble> {
        let (variant, inputs) = (self.variant, inputs.to_vec());
        let (done, answer) = oneshot::channel::<InferOutcome>();
        let now = Instant::now();
        self.worker.infer(Infer {
            variant: variant.id.clone(),
            parts: vec![Part::Inputs(inputs)],
            earliest: now,
            latest: Some(now + WINDOW),
            expected: Duration::try_from_secs_f64(expected_ms / 1e3).unwrap_or_default(),
            offline_rows: rows,
            done: Box::new(move |outcome| {
                // The receiver is gone if the dispatcher has stopped leading.
                done.send(outcome).ok();
            }),
        });
        let outcome = answer.await.unwrap_or(Err(InferError::ShuttingDown));
        let timings = outcome.map_err(|error| trouble(&error))?.timings;
        Ok((timings.input_us + timings.exec_us + timings.output_us) / 1e3)
    }
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

/// `times` must be in ascending order and have at least one entry.
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
