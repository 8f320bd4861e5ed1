//! Measures the highest throughput of batches.

use std::time::{Duration, Instant};

use sextant_engine::{Engine, Error};
use sextant_types::Precision;

use crate::{
    arguments::Arguments,
    record::record,
    setup::{self, LoadedNetwork, Network},
};

/// Threads that keep the device busy while others copy inputs and outputs.
const THREADS: usize = 3;

/// Measures images and sequences per second: in EXEC by the device's clock, with inputs and outputs one batch after the
/// other, and with several batches in flight.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    for network in [setup::images, setup::text] {
        let network = network(arguments);
        measure(&engine, &network, arguments)?;
    }
    Ok(true)
}

/// Measures the same, with inputs and outputs, at each precision of an engine that does not stage batches.
pub fn whole(engine: &dyn Engine, arguments: &Arguments) -> Result<(), Error> {
    let network = setup::images(arguments);
    let rows = setup::batch(arguments);
    let time = arguments.time / 4;
    for precision in engine.capabilities().precisions {
        let loaded = network.load(engine, precision, rows)?;
        loaded.warm_up(time)?;
        let batches = batches_of(&loaded, time)?;
        let cell = cell(&network, precision, rows, engine.name());
        record(
            &cell,
            "run_throughput",
            batches * rows as f64,
            &unit(&network),
        );
    }
    Ok(())
}

fn measure(engine: &dyn Engine, network: &Network, arguments: &Arguments) -> Result<(), Error> {
    let rows = setup::batch(arguments);
    let loaded = network.load(engine, Precision::Fp16, rows)?;
    let time = arguments.time / 6;
    loaded.warm_up(time)?;
    let times = loaded.run_for(time, usize::MAX)?;
    let rate = |seconds: &[f64]| (rows * seconds.len()) as f64 / seconds.iter().sum::<f64>();
    let cell = cell(network, Precision::Fp16, rows, "sextant");
    let unit = unit(network);
    record(&cell, "exec_throughput", rate(&times.exec), &unit);
    record(&cell, "run_throughput", rate(&times.whole), &unit);
    let batches = std::thread::scope(|scope| {
        let work = || scope.spawn(|| batches_of(&loaded, time));
        let threads: Vec<_> = (0..THREADS).map(|_| work()).collect();
        let died = |_| Err(Error::Failed("a thread died".to_owned()));
        let ends = threads.into_iter();
        ends.map(|it| it.join().unwrap_or_else(died))
            .sum::<Result<f64, Error>>()
    })?;
    let throughput = batches * rows as f64;
    record(&cell, "overlapped_throughput", throughput, &unit);
    Ok(())
}

/// Batches per second.
fn batches_of(loaded: &LoadedNetwork, time: Duration) -> Result<f64, Error> {
    let started = Instant::now();
    let mut batches = 0;
    while batches == 0 || started.elapsed() < time {
        loaded.run_whole()?;
        batches += 1;
    }
    Ok(f64::from(batches) / started.elapsed().as_secs_f64())
}

fn cell(network: &Network, precision: Precision, rows: usize, who: &str) -> String {
    let (name, precision) = (network.name, precision.name());
    format!("{name} {precision} batch {rows}, {who}")
}

fn unit(network: &Network) -> String {
    format!("{}/s", network.items)
}
