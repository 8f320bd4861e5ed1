//! Agreement with ONNX Runtime.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use sextant_engine::{Engine, Error, python_packages};
use sextant_engine_cuda::{
    CudaEngine,
    suite::{
        Case, Comparison, compare,
        networks::{self, Scale},
        operators,
    },
};
use sextant_engine_ort::OrtEngine;

use crate::{
    arguments::Arguments,
    record::{note, record},
    setup,
};

/// Compares operators at every precision, operator by operator, and returns whether all are within their tolerance. If
/// a case loses the device, that case fails, and another process compares the cases behind it.
pub fn operators(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = CudaEngine::new(driver, setup::small())?;
    let checked = check_operators(&engine, arguments)?;
    drop(engine);
    match checked.lost_at {
        Some(case) => Ok(go_on(arguments, case + 1)? && checked.agreed),
        None => Ok(checked.agreed),
    }
}

/// Compares whole networks.
pub fn networks(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let engine = setup::engine(&driver, arguments)?;
    check_networks(&engine, arguments)
}

/// Compares operators and networks of an engine.
pub fn both(engine: &dyn Engine, arguments: &Arguments) -> Result<bool, Error> {
    let operators = check_operators(engine, arguments)?;
    Ok(check_networks(engine, arguments)? && operators.agreed)
}

/// The library of ONNX Runtime on the processor: the provisioned version, otherwise that of this machine's Python.
pub fn library() -> Option<PathBuf> {
    OrtEngine::find_library(None).or_else(|| {
        let packages = python_packages().into_iter();
        let folders = packages.map(|it| it.join("onnxruntime/capi"));
        let files = folders.flat_map(|it| std::fs::read_dir(it).into_iter().flatten().flatten());
        let mut files = files.map(|entry| entry.path());
        files.find(|file| {
            let name = file.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with("libonnxruntime.so"))
        })
    })
}

struct CheckResult {
    agreed: bool,
    /// The case that lost the device.
    lost_at: Option<usize>,
}

fn reference() -> Result<OrtEngine, Error> {
    let missing = || {
        Error::Unavailable {
        engine: "ort",
        reason: "ONNX Runtime is missing: install the Python package `onnxruntime` for the `python3` on the path, or \
                 name its `libonnxruntime.so.*` in `ORT_DYLIB_PATH`"
            .to_owned(),
    }
    };
    OrtEngine::new(&library().ok_or_else(missing)?)
}

fn check_operators(engine: &dyn Engine, arguments: &Arguments) -> Result<CheckResult, Error> {
    let reference = reference()?;
    let mut cases: Vec<Case> = operators::cases(arguments.seed);
    // The cases of an operator come together.
    cases.sort_by_key(|case| case.operator);
    let numbered = cases.iter().enumerate().skip(arguments.from);
    let chosen = numbered.step_by(arguments.every);
    let mut checked = CheckResult {
        agreed: true,
        lost_at: None,
    };
    let mut done: Vec<Comparison> = Vec::new();
    for (number, case) in chosen {
        if done
            .last()
            .is_some_and(|last| last.operator != case.operator)
        {
            checked.agreed &= report(&std::mem::take(&mut done), arguments.seed);
        }
        done.extend(compare(engine, &reference, case, operators::tolerance));
        if done.iter().any(is_loss) {
            checked.lost_at = Some(number);
            break;
        }
    }
    checked.agreed &= report(&done, arguments.seed);
    Ok(checked)
}

fn check_networks(engine: &dyn Engine, arguments: &Arguments) -> Result<bool, Error> {
    let reference = reference()?;
    let scale = if arguments.small {
        Scale::Small
    } else {
        Scale::Full
    };
    let mut agreed = true;
    for case in networks::cases(scale) {
        let comparisons = compare(engine, &reference, &case, networks::tolerance);
        agreed &= report(&comparisons, case.seed);
    }
    Ok(agreed)
}

/// Runs the remaining cases in a new process, whose device is not lost.
fn go_on(arguments: &Arguments, from: usize) -> Result<bool, Error> {
    let failed = |error: std::io::Error| Error::Failed(format!("cannot start again: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let status = Command::new(program).args(arguments.words(from)).status();
    Ok(status.map_err(failed)?.success())
}

fn is_loss(comparison: &Comparison) -> bool {
    comparison.failure.as_ref().is_some_and(Error::is_loss)
}

fn report(comparisons: &[Comparison], seed: u64) -> bool {
    summarize(comparisons);
    let mut agreed = true;
    for comparison in comparisons.iter().filter(|it| !it.passed()) {
        eprintln!("differs: {comparison:?} (seed {seed})");
        let cell = cell(comparison);
        let problem = match &comparison.failure {
            Some(error) => format!("{}: {error}", comparison.detail),
            None => format!("{}: off by {:e}", comparison.detail, comparison.max_error),
        };
        note(&cell, "differs", &problem);
        agreed = false;
    }
    agreed
}

/// Prints, for each operator and precision, the case that comes nearest to its tolerance.
fn summarize(comparisons: &[Comparison]) {
    let mut worst: BTreeMap<String, &Comparison> = BTreeMap::new();
    let share = |it: &Comparison| it.max_error / it.tolerance;
    for comparison in comparisons {
        let kept = worst.entry(cell(comparison)).or_insert(comparison);
        if share(comparison) > share(kept) {
            *kept = comparison;
        }
    }
    for (cell, comparison) in worst {
        record(&cell, "max_error", comparison.max_error, "relative");
        record(&cell, "tolerance", comparison.tolerance, "relative");
        let passed = f64::from(u8::from(comparison.passed()));
        record(&cell, "passed", passed, "boolean");
    }
}

fn cell(comparison: &Comparison) -> String {
    format!("{} {}", comparison.operator, comparison.precision.name())
}
