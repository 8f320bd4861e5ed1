//! Agreement with ONNX Runtime.

use std::collections::BTreeMap;

use sextant_engine::{Engine, Error};
use sextant_engine_cuda::suite::{
    Comparison,
    networks::{self, Scale},
    operators,
};
use sextant_engine_ort::OrtEngine;

use crate::record::record;

/// Compares operators and networks at every precision; whether all are within their tolerance.
pub fn check(engine: &dyn Engine, seed: u64) -> Result<bool, Error> {
    let reference = reference()?;
    let mut comparisons = operators::all(engine, &reference, seed);
    comparisons.extend(networks::all(engine, &reference, Scale::Full));
    Ok(report(&comparisons, seed))
}

/// Compares operators alone.
pub fn operators(engine: &dyn Engine, seed: u64) -> Result<bool, Error> {
    let comparisons = operators::all(engine, &reference()?, seed);
    Ok(report(&comparisons, seed))
}

/// ONNX Runtime on the processor.
fn reference() -> Result<OrtEngine, Error> {
    let missing = || Error::Unavailable {
        engine: "ort",
        reason: "ONNX Runtime is missing: run `cargo xtask provision`".to_owned(),
    };
    let library = OrtEngine::find_library(None).ok_or_else(missing)?;
    OrtEngine::new(&library)
}

fn report(comparisons: &[Comparison], seed: u64) -> bool {
    summarize(comparisons);
    let mut agreed = true;
    for comparison in comparisons.iter().filter(|it| !it.passed()) {
        eprintln!("differs: {comparison:?} (seed {seed})");
        agreed = false;
    }
    agreed
}

/// For each operator and precision the case that comes nearest to its tolerance.
fn summarize(comparisons: &[Comparison]) {
    let mut worst: BTreeMap<(String, &str), &Comparison> = BTreeMap::new();
    let share = |it: &Comparison| it.max_error / it.tolerance;
    for comparison in comparisons {
        let key = (comparison.operator.clone(), comparison.precision.name());
        let kept = worst.entry(key).or_insert(comparison);
        if share(comparison) > share(kept) {
            *kept = comparison;
        }
    }
    for ((operator, precision), comparison) in worst {
        let cell = format!("{operator} {precision}");
        record(&cell, "max_error", comparison.max_error, "relative");
        record(&cell, "tolerance", comparison.tolerance, "relative");
        let passed = f64::from(u8::from(comparison.passed()));
        record(&cell, "passed", passed, "boolean");
    }
}
