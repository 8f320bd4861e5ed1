//! Measures LOAD and compares it with the highest speed of copies.

use std::time::Duration;

use sextant_engine::{Engine, Error};
use sextant_engine_cuda::{
    CudaEngine,
    driver::Driver,
    suite::loads::{self, Moves, RequestMaker},
};
use sextant_types::Precision;

use crate::{
    arguments::Arguments,
    copies, mapping,
    record::record,
    setup::{self, Network, median, share},
};

/// Measured loads; the median counts.
const TIMES: u32 = 11;
/// Loads of new artefacts. Each is read and planned.
const NEW: u32 = 3;

/// Loads in the three ways, and checks that a model gives the same answers in whichever pages it lies.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let bandwidth = copies::host_to_device(arguments)?;
    record("host to device", "bandwidth", bandwidth / 1e9, "GB/s");
    mapping::run(arguments)?;
    let mut same = true;
    for network in [setup::images, setup::text] {
        same &= measure(&network(arguments), arguments, bandwidth)?;
    }
    Ok(same)
}

fn measure(network: &Network, arguments: &Arguments, bandwidth: f64) -> Result<bool, Error> {
    let named = |name| network.named(name, Precision::Fp16);
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    let free = driver.free_bytes()?;
    let loaded = network.load(&engine, Precision::Fp16, 1)?;
    loaded.warm_up(Duration::ZERO)?;
    let taken = free.saturating_sub(driver.free_bytes()?);
    drop(loaded);
    let weights = engine.load(&named(0))?.weights_bytes();
    let pages = loads::pages(&engine, &named)?;
    let cell = format!("{} fp16 load", network.name);
    record(&cell, "weights", weights as f64, "bytes");
    record(&cell, "pages", pages as f64, "pages");
    // Weights have their pages from the start. The driver takes all further memory, for graphs and its libraries.
    record(&cell, "device_memory_taken", taken as f64, "bytes");
    let windows = f64::from(u8::from(engine.has_windows()));
    record(&cell, "pages_can_be_mapped", windows, "boolean");
    let report = |what: &str, times: Vec<Duration>| {
        let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        let middle = median(&mut seconds);
        let rate = weights as f64 / middle;
        record(&cell, &format!("{what}_median"), middle * 1e3, "ms");
        record(&cell, &format!("{what}_bandwidth"), rate / 1e9, "GB/s");
        let share = rate / bandwidth * 100.0;
        record(&cell, &format!("{what}_share_of_copy"), share, "percent");
    };
    report("same_pages", loads::same_pages(&engine, &named, TIMES)?);
    report("first_time", loads::first_time(&engine, &named, NEW)?);
    drop((engine, driver));
    let (moves, same) = moved(network, arguments, &named, pages)?;
    report("other_pages", moves.loads);
    let mut mapping: Vec<f64> = moves.mapping.iter().map(Duration::as_secs_f64).collect();
    record(
        &cell,
        "other_pages_map_us",
        median(&mut mapping) * 1e6,
        "us",
    );
    record(
        &cell,
        "other_pages_map_us_max",
        share(&mut mapping, 1.0) * 1e6,
        "us",
    );
    let value = f64::from(u8::from(same));
    record(&cell, "other_pages_same_answers", value, "boolean");
    if !same {
        eprintln!("{cell}: in other pages it answers otherwise");
    }
    Ok(same)
}

/// Loads that move a model, in an engine that has no room for anything else. Returns also whether the answers stay the
/// same.
fn moved(
    network: &Network,
    arguments: &Arguments,
    named: RequestMaker<'_>,
    pages: u64,
) -> Result<(Moves, bool), Error> {
    let driver = setup::driver(arguments)?;
    let config = loads::room_to_move(setup::config(arguments), pages);
    let engine = CudaEngine::new(driver, config)?;
    let mut answers = Vec::new();
    let moves = loads::other_pages(&engine, named, TIMES, &mut |model| {
        answers.push(model.run(&network.inputs(model, 1))?);
        Ok(())
    })?;
    let same = answers.iter().all(|answer| *answer == answers[0]);
    Ok((moves, same))
}
