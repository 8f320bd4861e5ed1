//! Compares the pipeline that reads pictures (`examples/ocr`) with the Python package from which its models come.

use std::path::Path;

use anyhow::Result;

use super::{Arguments, report::Report};
use crate::{
    paths,
    provision::{self, python},
    server::{self, Server},
    shell,
};

/// The package and its dependencies.
const REQUIREMENTS: &str = include_str!("../../../examples/ocr/requirements.txt");

/// Number of pictures that are read.
const PICTURES: &str = "20";

/// Compares texts and speeds.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let provisioned = provision::runtime()?;
    let interpreter = python::environment(&paths::cache()?.join("ocr"), REQUIREMENTS)?;
    let example = paths::root().join("examples/ocr");
    let folder = paths::empty_target("bench-ocr")?;
    let files = folder.join("files");
    let script = |name: &str| {
        let mut command = shell::command(&interpreter);
        command
            .arg(example.join(name))
            .arg(&files)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    shell::run(script("make.py").arg(PICTURES))?;
    let binary = server::build()?;
    let address = server::free_address()?;
    let mut command = server::sextant(&binary, &provisioned, address, &folder.join("data"));
    for setting in settings(&interpreter) {
        command.args(["--set", &setting]);
    }
    let service = Server::start("sextant", command, address, "/health/ready")?;
    report.version("rapidocr", python::version(&interpreter, "rapidocr")?);
    let mut compare = script("compare.py");
    compare
        .arg(&binary)
        .arg(format!("http://{}", service.address));
    compare.arg(arguments.seconds.to_string());
    let told = shell::output(&mut compare)?;
    told.lines()
        .filter(|line| line.starts_with('{'))
        .try_for_each(|line| report.pass(line))
}

/// The service's settings: steps in Python, and room for the scores of a whole page.
fn settings(interpreter: &Path) -> [String; 5] {
    [
        "variants.engines=ort".to_owned(),
        // The pipeline runs the files as they are, so no other variants are measured.
        "variants.effort=quick".to_owned(),
        "pipelines.python.enabled=true".to_owned(),
        format!("pipelines.python.interpreter={}", interpreter.display()),
        format!("limits.max_body_bytes_in_flight={}", 4u64 << 30),
    ]
}
