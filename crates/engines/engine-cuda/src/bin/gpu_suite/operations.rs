//! Measures how the time of a network is spent.

use sextant_engine::Error;
use sextant_types::Precision;

use crate::{arguments::Arguments, record::record, setup};

/// The time of each kind of operation in the two networks, in one batch and in a batch of one.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    for rows in [setup::batch(arguments), 1] {
        for network in [setup::images, setup::text] {
            let network = network(arguments);
            let driver = setup::driver(arguments)?;
            let kinds = network.times(&driver, Precision::Fp16, rows as u64)?;
            let all: f64 = kinds.iter().map(|kind| kind.time.as_secs_f64()).sum();
            let count: u64 = kinds.iter().map(|kind| kind.count).sum();
            let cell = format!("{} fp16 batch {rows}", network.name);
            record(&cell, "operations", count as f64, "operations");
            record(&cell, "operations_time", all * 1e6, "us");
            for kind in kinds {
                let cell = format!("{cell}, {} times {}", kind.count, kind.name);
                record(&cell, "time", kind.time.as_secs_f64() * 1e6, "us");
            }
        }
    }
    Ok(true)
}
