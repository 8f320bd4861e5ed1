//! Engines in processes of their own: ONNX Runtime passes the conformance suite there, and what ends a
//! process costs the run that has ended it, and nobody else anything.
//!
//! The child is this very test program, told to run the test `child` alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod faults;
mod harmful;
mod tries;

#[path = "../../../engine/tests/support/fixtures.rs"]
mod fixtures;

#[path = "../../../engine/tests/support/rows.rs"]
mod rows;

use std::{env, path::Path, sync::Arc};

use sextant_engine::Engine;
use sextant_engine_ort::OrtEngine;
use sextant_isolation::{IsolatedEngine, Program, confine, serve};

use harmful::HarmfulEngine;

/// What a child may take: room for the stacks of its threads, and 1 GiB.
const MEMORY_BYTES: u64 = (3 << 30) + (1 << 30);

/// Names an engine to a child.
const ORT: &str = "engine=ort:";
const HARMFUL: &str = "engine=harmful";

/// In a process that was started as a child it serves, and never returns as a test.
#[test]
fn child() {
    let Some(engine) = env::args().find(|it| it.starts_with("engine=")) else {
        return;
    };
    let library = engine.strip_prefix(ORT);
    let libraries: Vec<&Path> = library.map(Path::new).into_iter().collect();
    confine(MEMORY_BYTES, &libraries, None).unwrap();
    let engine: Arc<dyn Engine> = match library {
        Some(library) => Arc::new(OrtEngine::new(library.as_ref()).unwrap()),
        None => Arc::new(HarmfulEngine),
    };
    serve(engine).unwrap();
    std::process::exit(0);
}

/// `engine`, served by children that know it by `name` and are known by `mark`.
fn isolated(engine: Arc<dyn Engine>, name: &str, mark: &str) -> IsolatedEngine {
    let arguments = ["--exact", "child", "--nocapture", name, mark];
    let program = Program {
        program: env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).to_vec(),
        memory_bytes: MEMORY_BYTES,
    };
    IsolatedEngine::new(engine, program)
}
