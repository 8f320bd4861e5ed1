//! The device, the engine on it, and the networks that are measured.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::cuda::CudaDriver,
    suite::{
        networks::{Encoder, Residual, encoder, resnet},
        times::{self, Kind},
    },
};
use sextant_types::{Digest, NamedTensor, Optimization, Precision};

use crate::{arguments::Arguments, record::record};

/// Runs before a measurement.
const WARM_UP: usize = 50;

/// A network and the unit of its batches.
pub struct Network {
    pub name: &'static str,
    /// The items of a batch, such as images.
    pub items: &'static str,
    file: Bytes,
    /// Sizes of open dimensions other than the batch.
    length: Option<usize>,
    digest: u8,
}

/// A loaded network with inputs of one batch size.
pub struct LoadedNetwork {
    model: Arc<dyn LoadedModel>,
    inputs: Vec<NamedTensor>,
}

/// Times of many runs.
#[derive(Default)]
pub struct Times {
    /// Times of EXEC by the device's clock, seconds.
    pub exec: Vec<f64>,
    /// Times with inputs and outputs by the processor's clock, seconds.
    pub whole: Vec<f64>,
}

/// Opens the device, and compiles the kernels unless they are kept.
pub fn driver(arguments: &Arguments) -> Result<Arc<CudaDriver>, Error> {
    Ok(Arc::new(CudaDriver::open(arguments.device)?))
}

/// The engine with the memory that the arguments ask for.
pub fn engine(driver: &Arc<CudaDriver>, arguments: &Arguments) -> Result<CudaEngine, Error> {
    CudaEngine::new(driver.clone(), config(arguments))
}

/// The division of memory for whole networks.
pub fn config(arguments: &Arguments) -> Config {
    if arguments.small {
        return Config {
            page_bytes: 96 << 10,
            pages: Some(64),
            ..small()
        };
    }
    Config {
        pages: Some(arguments.pages),
        host_bytes: arguments.host_bytes,
        ..Config::default()
    }
}

/// The division of memory for operators and small networks.
pub fn small() -> Config {
    Config {
        page_bytes: 1 << 20,
        pages: Some(64),
        workspace_bytes: 64 << 20,
        io_bytes: 16 << 20,
        scratch_bytes: 32 << 20,
        largest_batch: 4,
        host_bytes: 64 << 20,
    }
}

/// Rows of a batch, as in the side-by-side measurement.
pub fn batch(arguments: &Arguments) -> usize {
    if arguments.small { 4 } else { 16 }
}

/// ResNet-50.
pub fn images(arguments: &Arguments) -> Network {
    let (width, size, classes) = if arguments.small {
        (4, 32, 10)
    } else {
        (64, 224, 1000)
    };
    let network = Residual {
        depths: [3, 4, 6, 3],
        bottleneck: true,
        width,
        size,
        classes,
    };
    Network {
        name: "ResNet-50",
        items: "images",
        file: resnet(&network, 3),
        length: None,
        digest: 50,
    }
}

/// A BERT-like encoder of sequences of 128 tokens.
pub fn text(arguments: &Arguments) -> Network {
    let (sizes, length) = if arguments.small {
        (Encoder::SMALL, 11)
    } else {
        (Encoder::BASE, 128)
    };
    Network {
        name: "BERT-like encoder",
        items: "sequences",
        file: encoder(&sizes, 4),
        length: Some(length),
        digest: 51,
    }
}

/// The median. It sorts the values.
pub fn median(values: &mut [f64]) -> f64 {
    share(values, 0.5)
}

/// The smallest of the values such that at least `share` of all values are not above it. It sorts the values.
pub fn share(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    let index = rank.saturating_sub(1).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or(f64::NAN)
}

// === impl Network ===

impl Network {
    /// The network as an artefact of this name; another name is another artefact.
    pub fn named(&self, name: u32, precision: Precision) -> LoadRequest {
        let mut digest = [self.digest; 32];
        digest[..4].copy_from_slice(&name.to_le_bytes());
        LoadRequest {
            artefact: Digest::from_bytes(digest),
            model: self.file.clone().into(),
            precision,
            optimization: Optimization::All,
            threads: 1,
        }
    }

    /// Loads the network and makes inputs of `rows` rows.
    pub fn load(
        &self,
        engine: &dyn Engine,
        precision: Precision,
        rows: usize,
    ) -> Result<LoadedNetwork, Error> {
        let model = engine.load(&self.named(0, precision))?;
        Ok(LoadedNetwork {
            inputs: self.inputs(&*model, rows),
            model,
        })
    }

    /// The time of each kind of operation in a batch of `rows` rows.
    pub fn times(
        &self,
        driver: &CudaDriver,
        precision: Precision,
        rows: u64,
    ) -> Result<Vec<Kind>, Error> {
        let length = self.length.unwrap_or(1) as u64;
        times::of_network(driver, &self.file, precision, rows, length)
    }

    /// Inputs of `rows` rows.
    pub fn inputs(&self, model: &dyn LoadedModel, rows: usize) -> Vec<NamedTensor> {
        let dynamic: Vec<usize> = [rows].into_iter().chain(self.length).collect();
        random_inputs(model.signature(), &dynamic, 11)
    }
}

// === impl LoadedNetwork ===

impl LoadedNetwork {
    /// Runs a batch and returns the time of EXEC by the device's clock.
    pub fn run(&self) -> Result<Duration, Error> {
        let unstaged = || Error::Failed("the engine does not stage batches".to_owned());
        let mut staged = self.model.stage(&self.inputs)?.ok_or_else(unstaged)?;
        let untimed = || Error::Failed("the device took no time".to_owned());
        let executed = staged.exec()?.ok_or_else(untimed)?;
        staged.collect()?;
        Ok(executed)
    }

    /// Runs a batch on an engine that does not stage batches.
    pub fn run_whole(&self) -> Result<(), Error> {
        self.model.run(&self.inputs).map(drop)
    }

    /// Runs batches that are not measured.
    pub fn warm_up(&self, time: Duration) -> Result<(), Error> {
        let started = Instant::now();
        for _ in 0..WARM_UP {
            self.run_whole()?;
            if started.elapsed() > time {
                break;
            }
        }
        Ok(())
    }

    /// Runs batches, one after the other, for `time`, at least one.
    pub fn run_for(&self, time: Duration, runs: usize) -> Result<Times, Error> {
        let started = Instant::now();
        let mut times = Times::default();
        while times.exec.len() < runs && (times.exec.is_empty() || started.elapsed() < time) {
            times.add(self)?;
        }
        Ok(times)
    }
}

// === impl Times ===

impl Times {
    /// Runs a batch.
    pub fn add(&mut self, loaded: &LoadedNetwork) -> Result<(), Error> {
        let started = Instant::now();
        let executed = loaded.run()?;
        self.whole.push(started.elapsed().as_secs_f64());
        self.exec.push(executed.as_secs_f64());
        Ok(())
    }

    /// Prints how many runs there were and what they took.
    pub fn record(&mut self, cell: &str) {
        record(cell, "runs", self.exec.len() as f64, "runs");
        for (what, seconds) in [("exec", &mut self.exec), ("run", &mut self.whole)] {
            let median = median(seconds);
            record(cell, &format!("{what}_median"), median * 1e6, "us");
            let shares = [
                ("p99", 0.99),
                ("p999", 0.999),
                ("p9999", 0.9999),
                ("max", 1.0),
            ];
            for (name, of) in shares {
                let high = share(seconds, of);
                record(cell, &format!("{what}_{name}"), high * 1e6, "us");
                let above = (high / median - 1.0) * 100.0;
                record(
                    cell,
                    &format!("{what}_{name}_above_median"),
                    above,
                    "percent",
                );
            }
        }
    }
}
