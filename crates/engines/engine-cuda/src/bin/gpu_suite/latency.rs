//! Measures single runs: alone, while models are loaded, and beside another model.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sextant_engine::{Engine, Error};
use sextant_engine_cuda::{CudaEngine, driver::Driver, suite::loads};
use sextant_types::Precision;

use crate::{
    arguments::Arguments,
    record::record,
    setup::{self, LoadedNetwork, Network, Times},
};

/// Names of artefacts that are loaded and unloaded beside a running model. They are above the names that other parts
/// use.
const BESIDE: u32 = 1 << 20;

/// Runs single batches until the time is over.
pub fn jitter(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    let loaded = setup::images(arguments).load(&engine, Precision::Fp16, 1)?;
    loaded.warm_up(arguments.time / 10)?;
    let cell = "ResNet-50 fp16 batch 1";
    record(cell, "clock_before", f64::from(driver.clock_mhz()?), "MHz");
    let mut times = loaded.run_for(arguments.time, arguments.runs)?;
    record(cell, "clock_after", f64::from(driver.clock_mhz()?), "MHz");
    times.record(cell);
    Ok(true)
}

/// Runs single batches alone, while a model is loaded into its own pages again and again, while new models are loaded,
/// and while a model is loaded into other pages each time.
pub fn infer_and_load(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    let (images, text) = (setup::images(arguments), setup::text(arguments));
    let free = engine.free_pages();
    let loaded = images.load(&engine, Precision::Fp16, 1)?;
    let held = free - engine.free_pages();
    let time = arguments.time / 4;
    loaded.warm_up(time)?;
    loaded.run_for(time, usize::MAX)?.record(&beside("alone"));
    // The model is read and planned before anything is measured beside it.
    let free = engine.free_pages();
    let known = engine.load(&text.named(BESIDE, Precision::Fp16))?;
    let pages = free - engine.free_pages();
    drop(known);
    // No graph of the encoder is captured before a batch comes, so its loads are only copies.
    for (what, network, new) in [
        ("while pages are loaded", &text, 0),
        ("while new models are loaded", &images, 1),
    ] {
        let load = |over: &AtomicBool| load_until(&engine, network, new, over);
        while_loading(&loaded, what, time, load)?;
    }
    drop((loaded, engine, driver));
    let mut config = loads::room_to_move(setup::config(arguments), pages);
    config.pages = config.pages.map(|pages| pages + held);
    let engine = CudaEngine::new(setup::driver(arguments)?, config)?;
    let loaded = images.load(&engine, Precision::Fp16, 1)?;
    loaded.warm_up(time)?;
    let load = |over: &AtomicBool| {
        let named = |name| text.named(BESIDE + name, Precision::Fp16);
        loads::keep_moving(&engine, &named, over)
    };
    load(&AtomicBool::new(true))?;
    while_loading(&loaded, "while other pages are loaded", time, load)?;
    Ok(true)
}

/// The cell of single runs beside something else.
fn beside(what: &str) -> String {
    format!("ResNet-50 fp16 batch 1, {what}")
}

/// Runs batches for a time beside a thread that loads models. The thread stops when the time is over and returns the
/// number of its loads.
fn while_loading(
    loaded: &LoadedNetwork,
    what: &str,
    time: Duration,
    load: impl Fn(&AtomicBool) -> Result<u32, Error> + Sync,
) -> Result<(), Error> {
    let over = AtomicBool::new(false);
    let (mut times, loads) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&over));
        let times = loaded.run_for(time, usize::MAX);
        over.store(true, Ordering::Relaxed);
        let died = |_| Err(Error::Failed("the thread that loads died".to_owned()));
        let loads = loading.join().unwrap_or_else(died)?;
        Ok::<_, Error>((times?, loads))
    })?;
    let cell = beside(what);
    times.record(&cell);
    record(&cell, "loads", f64::from(loads), "loads");
    Ok(())
}

/// Loads models; the name of each is `new` higher than that of the one before.
fn load_until(
    engine: &CudaEngine,
    network: &Network,
    new: u32,
    over: &AtomicBool,
) -> Result<u32, Error> {
    let mut loads = 0;
    while !over.load(Ordering::Relaxed) {
        let name = BESIDE + new * loads;
        drop(engine.load(&network.named(name, Precision::Fp16))?);
        loads += 1;
    }
    Ok(loads)
}

/// Runs two models: each alone, by turns, and from two threads at once.
pub fn two_models(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    let networks = [setup::images(arguments), setup::text(arguments)];
    let load = |network: &Network| network.load(&engine, Precision::Fp16, 1);
    let [images, text] = [load(&networks[0])?, load(&networks[1])?];
    let time = arguments.time / 4;
    let both = [(&images, networks[0].name), (&text, networks[1].name)];
    let report = |name: &str, what: &str, mut times: Times| {
        times.record(&format!("{name} fp16 batch 1, {what}"));
    };
    for (loaded, name) in both {
        loaded.warm_up(time)?;
        report(name, "alone", loaded.run_for(time, usize::MAX)?);
    }
    let [mut first, mut second] = [Times::default(), Times::default()];
    let started = std::time::Instant::now();
    while first.exec.is_empty() || started.elapsed() < time {
        first.add(&images)?;
        second.add(&text)?;
    }
    report(networks[0].name, "by turns", first);
    report(networks[1].name, "by turns", second);
    let [first, second] = std::thread::scope(|scope| {
        let threads = [&images, &text].map(|it| scope.spawn(move || it.run_for(time, usize::MAX)));
        let died = |_| Err(Error::Failed("a thread died".to_owned()));
        threads.map(|it| it.join().unwrap_or_else(died))
    });
    report(networks[0].name, "from two threads", first?);
    report(networks[1].name, "from two threads", second?);
    Ok(true)
}
