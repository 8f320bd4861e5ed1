//! Measures the calls that map pages, on their own.

use std::time::Instant;

use sextant_engine::Error;
use sextant_engine_cuda::{
    driver::{Driver, Paging, Priority, Reservation, cuda::CudaDriver},
    operation::Address,
};

use crate::{
    arguments::Arguments,
    record::record,
    setup::{self, median, share},
};

/// Pages that move at a time: as many as ResNet-50 has.
const PAGES: u32 = 4;
/// Measured calls; the median counts.
const TIMES: usize = 21;

/// Maps pages into a window, then others in place of them, and so on: on an idle device, and while the device copies
/// into the pages. If the driver waits for the copy, the calls of the second case take as long as the copy.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let driver = setup::driver(arguments)?;
    let Some(unit) = driver.page_granularity() else {
        return Ok(());
    };
    let page_bytes = setup::config(arguments).page_bytes.next_multiple_of(unit);
    let bytes = u64::from(2 * PAGES) * page_bytes;
    let paging = Paging {
        page_bytes,
        pages: 2 * PAGES,
        windows: Address::new(bytes),
        slots: u64::from(PAGES),
    };
    let has_windows = driver.start(&Reservation {
        arena_bytes: bytes,
        staging_bytes: bytes,
        scratch_bytes: 0,
        paging: Some(paging),
    })?;
    if !has_windows {
        return Ok(());
    }
    measure(&driver, &paging, "alone", 0)?;
    measure(&driver, &paging, "beside_a_copy", bytes)
}

/// Measures the calls while `bytes` bytes are copied.
fn measure(driver: &CudaDriver, paging: &Paging, what: &str, bytes: u64) -> Result<(), Error> {
    let stream = driver.create_stream(Priority::Normal)?;
    let halves = [0..PAGES, PAGES..2 * PAGES].map(|half| half.collect::<Vec<u32>>());
    let (mut calls, mut all) = (Vec::new(), Vec::new());
    for turn in 0..=TIMES {
        let started = Instant::now();
        if bytes > 0 {
            driver.copy_in(stream, Address::new(0), Address::new(0), bytes)?;
        }
        let called = Instant::now();
        driver.map(paging.windows, &halves[turn % 2])?;
        calls.push(called.elapsed().as_secs_f64());
        driver.synchronize(stream)?;
        all.push(started.elapsed().as_secs_f64());
    }
    // The first call finds the window empty.
    let (calls, all) = (&mut calls[1..], &mut all[1..]);
    let cell = format!("mapping of {PAGES} pages");
    record(&cell, &format!("{what}_map_us"), median(calls) * 1e6, "us");
    let most = share(calls, 1.0) * 1e6;
    record(&cell, &format!("{what}_map_us_max"), most, "us");
    let whole = median(all) * 1e6;
    record(&cell, &format!("{what}_whole_us"), whole, "us");
    Ok(())
}
