//! Latency, loading, throughput.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Error, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_cuda::{
    CudaEngine,
    driver::{Driver, Priority, Reservation, cuda::CudaDriver},
    operation::Address,
    suite::networks::{Residual, resnet},
};
use sextant_types::{Digest, NamedTensor, Optimization, Precision};

use crate::record::record;

/// Bytes of one measured copy.
const COPY_BYTES: u64 = 256 << 20;
/// Measured copies and loads; the median counts.
const REPETITIONS: usize = 11;
/// Runs before a measurement.
const WARM_UP: usize = 200;
/// Images of a batch, as the side-by-side measurement has them.
const BATCH: usize = 16;
/// Measured batches.
const BATCHES: usize = 500;

const RESNET_50: Residual = Residual {
    depths: [3, 4, 6, 3],
    bottleneck: true,
    width: 64,
    size: 224,
    classes: 1000,
};

/// Bytes per second from pinned memory to the device, by the device's clock.
pub fn host_to_device(driver: &CudaDriver) -> Result<f64, Error> {
    driver.start(&Reservation {
        arena_bytes: COPY_BYTES,
        staging_bytes: COPY_BYTES,
        scratch_bytes: 0,
    })?;
    let stream = driver.create_stream(Priority::Normal)?;
    let (start, end) = (driver.create_event()?, driver.create_event()?);
    let mut seconds = Vec::new();
    for _ in 0..=REPETITIONS {
        driver.record(start, stream)?;
        driver.copy_in(stream, Address::new(0), Address::new(0), COPY_BYTES)?;
        driver.record(end, stream)?;
        driver.synchronize_event(end)?;
        seconds.push(driver.elapsed(start, end)?.as_secs_f64());
    }
    // The first copy also wakes the bus.
    let rate = COPY_BYTES as f64 / median(&mut seconds[1..]);
    record("host to device", "bandwidth", rate / 1e9, "GB/s");
    Ok(rate)
}

/// How far the slowest of many single runs are from the usual one.
pub fn latency(engine: &CudaEngine, runs: usize) -> Result<(), Error> {
    let model = load(engine, Precision::Fp16)?;
    let inputs = random_inputs(model.signature(), &[1], 11);
    let mut device = Vec::with_capacity(runs);
    let mut whole = Vec::with_capacity(runs);
    for run in 0..WARM_UP + runs {
        let started = Instant::now();
        let executed = run_once(&*model, &inputs)?;
        if run >= WARM_UP {
            whole.push(started.elapsed().as_secs_f64());
            device.push(executed.as_secs_f64());
        }
    }
    let cell = "ResNet-50 fp16 batch 1";
    record(cell, "runs", runs as f64, "runs");
    for (what, seconds) in [("exec", &mut device), ("run", &mut whole)] {
        let median = median(seconds);
        let high = seconds[(seconds.len() - 1) * 999 / 1000];
        record(cell, &format!("{what}_median"), median * 1e6, "us");
        record(cell, &format!("{what}_p999"), high * 1e6, "us");
        let above = (high / median - 1.0) * 100.0;
        record(cell, &format!("{what}_p999_above_median"), above, "percent");
    }
    Ok(())
}

/// Loading weights that the host has ready, as a share of what the bus can do.
pub fn loading(engine: &CudaEngine, bandwidth: f64) -> Result<(), Error> {
    let precision = Precision::Fp32;
    // The first load reads the file and plans; the others find all that on the host.
    let weights_bytes = load(engine, precision)?.weights_bytes();
    let mut seconds = Vec::new();
    for _ in 0..REPETITIONS {
        let request = request(precision);
        let started = Instant::now();
        let loaded = engine.load(&request)?;
        seconds.push(started.elapsed().as_secs_f64());
        drop(loaded);
    }
    let rate = weights_bytes as f64 / median(&mut seconds);
    let cell = "ResNet-50 fp32 load";
    record(cell, "weights", weights_bytes as f64, "bytes");
    record(cell, "load_bandwidth", rate / 1e9, "GB/s");
    record(cell, "load_share", rate / bandwidth * 100.0, "percent");
    Ok(())
}

/// Images per second, on the device alone and with inputs and outputs.
pub fn throughput(engine: &CudaEngine) -> Result<(), Error> {
    let model = load(engine, Precision::Fp16)?;
    let inputs = random_inputs(model.signature(), &[BATCH], 12);
    for _ in 0..WARM_UP {
        run_once(&*model, &inputs)?;
    }
    let started = Instant::now();
    let mut device = Duration::ZERO;
    for _ in 0..BATCHES {
        device += run_once(&*model, &inputs)?;
    }
    let whole = started.elapsed();
    let images = (BATCH * BATCHES) as f64;
    let cell = "ResNet-50 fp16 batch 16, sextant";
    for (metric, time) in [("exec_throughput", device), ("run_throughput", whole)] {
        record(cell, metric, images / time.as_secs_f64(), "images/s");
    }
    Ok(())
}

/// The same with inputs and outputs at each precision of an engine that does not stage batches.
pub fn whole_throughput(engine: &dyn Engine) -> Result<(), Error> {
    for precision in engine.capabilities().precisions {
        let model = load(engine, precision)?;
        let inputs = random_inputs(model.signature(), &[BATCH], 12);
        for _ in 0..WARM_UP {
            model.run(&inputs)?;
        }
        let started = Instant::now();
        for _ in 0..BATCHES {
            model.run(&inputs)?;
        }
        let images = (BATCH * BATCHES) as f64;
        let (name, precision) = (engine.name(), precision.name());
        let cell = format!("ResNet-50 {precision} batch {BATCH}, {name}");
        let throughput = images / started.elapsed().as_secs_f64();
        record(&cell, "run_throughput", throughput, "images/s");
    }
    Ok(())
}

fn load(engine: &dyn Engine, precision: Precision) -> Result<Arc<dyn LoadedModel>, Error> {
    engine.load(&request(precision))
}

fn request(precision: Precision) -> LoadRequest {
    LoadRequest {
        artefact: Digest::from_bytes([50; 32]),
        model: resnet(&RESNET_50, 3).into(),
        precision,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// Runs a batch; the time of EXEC by the device's clock.
fn run_once(model: &dyn LoadedModel, inputs: &[NamedTensor]) -> Result<Duration, Error> {
    let unstaged = || Error::Failed("the engine does not stage batches".to_owned());
    let mut staged = model.stage(inputs)?.ok_or_else(unstaged)?;
    let untimed = || Error::Failed("the device took no time".to_owned());
    let executed = staged.exec()?.ok_or_else(untimed)?;
    staged.collect()?;
    Ok(executed)
}

/// The middle value; sorts.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
