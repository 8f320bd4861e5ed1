//! Functions of Python files in confined processes: what they take and give, and what is left where they do harm.
//!
//! The child is this very test program, told to run the test `child` alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod calls;
mod harm;

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_isolation::Program;
use sextant_pipeline::{
    Call, CallResult, CheckContext, Definition, Function, Graph, Interpreter, Memory, Target,
    UnboundedMemory,
};
use sextant_python::{Confinement, Python, Settings, find};
use sextant_rpc::QueryError;
use sextant_test_servers::interpreter;
use sextant_types::{Code, NamedTensor, Route, Tensor};

/// What a child may take.
const MEMORY_BYTES: u64 = 1 << 30;

/// Tells a child what it is to become.
const MARK: &str = "step=";

/// In a process that was started as a child it becomes the interpreter, and never returns as a test.
#[test]
fn child() {
    let Some(text) = env::args().find_map(|it| it.strip_prefix(MARK).map(str::to_owned)) else {
        return;
    };
    let told: Value = serde_json::from_str(&text).unwrap();
    let paths = |name: &str| -> Vec<PathBuf> {
        let paths = told[name].as_array().unwrap().iter();
        paths.map(|it| it.as_str().unwrap().into()).collect()
    };
    let confined = Confinement {
        memory_bytes: MEMORY_BYTES,
        executable: told["executable"].as_str().unwrap().into(),
        readable: paths("readable"),
        packages: paths("packages"),
    };
    panic!("{:?}", confined.run());
}

/// Calls functions in at most `processes` children.
fn python(processes: usize, time_limit: Duration) -> Python {
    let found = find(&interpreter(), &[]).unwrap();
    let confined = Confinement::of(&found, None, MEMORY_BYTES);
    let told = json!({
        "executable": confined.executable, "readable": confined.readable, "packages": confined.packages,
    });
    let mark = format!("{MARK}{told}");
    let arguments = ["--exact", "child", "--nocapture", &mark];
    Python::new(Settings {
        program: Program {
            program: env::current_exe().unwrap(),
            arguments: arguments.map(Into::into).to_vec(),
            memory_bytes: MEMORY_BYTES,
        },
        processes,
        time_limit,
    })
}

/// Time that suffices on any machine.
const LONG: Duration = Duration::from_secs(120);

/// The function `run` of a file that takes and gives these tensors, each `name: (datatype, shape)`.
fn function(file: &str, takes: &Value, gives: &Value) -> Arc<Function> {
    named(("test", "run"), file, takes, gives)
}

/// The function `run` of a file, where rows of several queries may share a call.
fn batched(file: &str, takes: &Value, gives: &Value, most: u32) -> Arc<Function> {
    made(
        ("test", "run"),
        file,
        (takes, gives, json!({"max_batch": most})),
    )
}

/// A function of a pipeline.
fn named(
    (pipeline, name): (&str, &str),
    file: &str,
    takes: &Value,
    gives: &Value,
) -> Arc<Function> {
    made((pipeline, name), file, (takes, gives, json!({})))
}

/// A function whose step says more than what it takes and gives.
fn made(
    (pipeline, name): (&str, &str),
    file: &str,
    (takes, gives, more): (&Value, &Value, Value),
) -> Arc<Function> {
    let tensors = |of: &Value| -> Vec<Value> {
        let each = of.as_object().unwrap().iter();
        each.map(|(name, of)| json!({"name": name, "datatype": of[0], "shape": of[1]}))
            .collect()
    };
    let mut python = json!({
        "function": format!("steps/file.py:{name}"), "takes": tensors(takes), "gives": tensors(gives)});
    let more = more.as_object().unwrap().clone();
    python.as_object_mut().unwrap().extend(more);
    let step = json!({"name": "step", "python": python});
    let definition: Definition =
        serde_json::from_value(json!({"name": pipeline, "steps": [step]})).unwrap();
    let files = [(
        "steps/file.py".to_owned(),
        Bytes::copy_from_slice(file.as_bytes()),
    )]
    .into();
    let nobody = |_: &Route| -> Result<Target, QueryError> {
        Err(QueryError::new(Code::ModelNotFound, "nobody"))
    };
    let known = CheckContext {
        targets: &nobody,
        files: &files,
    };
    let graph = Graph::new(definition, &known).unwrap();
    let (_, function) = graph.functions().next().unwrap();
    Arc::clone(function)
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor {
    NamedTensor::new(name, Tensor::from_elements(shape.to_vec(), values).unwrap())
}

async fn call(
    python: &Python,
    function: &Arc<Function>,
    inputs: Vec<NamedTensor>,
) -> Result<CallResult, QueryError> {
    let memory: Arc<dyn Memory> = Arc::new(UnboundedMemory);
    let call = Call {
        inputs,
        sent: Box::new(()),
        memory,
        until: None,
    };
    python.call(function, call).await
}

/// Calls it, and it fails.
async fn failure(
    python: &Python,
    function: &Arc<Function>,
    inputs: Vec<NamedTensor>,
) -> QueryError {
    match call(python, function, inputs).await {
        Ok(called) => panic!("it gave {:?}", called.outputs),
        Err(error) => error,
    }
}

fn is_there(path: &Path) -> bool {
    path.exists()
}
