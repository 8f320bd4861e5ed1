//! Measures the highest speed of copies, with which LOAD is compared.

use std::sync::Arc;

use sextant_engine::Error;
use sextant_engine_cuda::{
    driver::{Driver, Priority, Reservation, cuda::CudaDriver},
    operation::Address,
};

use crate::{
    arguments::Arguments,
    record::record,
    setup::{self, median},
};

/// Measured copies; the median counts.
const REPETITIONS: usize = 11;

/// Prints the bandwidth in each direction and on the device.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let bytes = bytes(arguments);
    start(&driver, bytes)?;
    for (cell, kind) in [
        ("host to device", Kind::In),
        ("device to host", Kind::Out),
        ("on the device", Kind::Within),
    ] {
        let rate = rate(&driver, kind, bytes)?;
        record(cell, "bandwidth", rate / 1e9, "GB/s");
    }
    Ok(true)
}

/// Bytes per second from pinned memory to the device, on a driver of its own.
pub fn host_to_device(arguments: &Arguments) -> Result<f64, Error> {
    let driver = setup::driver(arguments)?;
    let bytes = bytes(arguments);
    start(&driver, bytes)?;
    rate(&driver, Kind::In, bytes)
}

#[derive(Clone, Copy)]
enum Kind {
    In,
    Out,
    Within,
}

/// Bytes of one measured copy.
fn bytes(arguments: &Arguments) -> u64 {
    if arguments.small { 1 << 20 } else { 256 << 20 }
}

fn start(driver: &Arc<CudaDriver>, bytes: u64) -> Result<(), Error> {
    let windows = driver.start(&Reservation {
        arena_bytes: 2 * bytes,
        staging_bytes: bytes,
        scratch_bytes: 0,
        paging: None,
    });
    windows.map(drop)
}

/// Bytes per second, measured by the device's clock.
fn rate(driver: &CudaDriver, kind: Kind, bytes: u64) -> Result<f64, Error> {
    let stream = driver.create_stream(Priority::Normal)?;
    let (start, end) = (driver.create_event()?, driver.create_event()?);
    let mut seconds = Vec::new();
    for _ in 0..=REPETITIONS {
        driver.record(start, stream)?;
        let (host, device) = (Address::new(0), Address::new(0));
        match kind {
            Kind::In => driver.copy_in(stream, host, device, bytes)?,
            Kind::Out => driver.copy_out(stream, device, host, bytes)?,
            Kind::Within => driver.copy_within(stream, device, Address::new(bytes), bytes)?,
        }
        driver.record(end, stream)?;
        driver.synchronize_event(end)?;
        seconds.push(driver.elapsed(start, end)?.as_secs_f64());
    }
    // The first copy also wakes the bus.
    Ok(bytes as f64 / median(&mut seconds[1..]))
}
