//! Runtimes in Python as child processes of the engine under test.

use std::{path::PathBuf, process::Command, time::Duration};

use bytes::Bytes;
use sextant_engine_remote::{Load, Program, RemoteConfig, Source};

/// The runtime's name.
pub const NAME: &str = "example";

/// A server written in Python, which loads models on request.
pub fn script(path: &str, arguments: &[&str]) -> RemoteConfig {
    let version = Command::new("python3").arg("--version").output();
    assert!(
        version.is_ok(),
        "python3 is missing: install the package `python3`"
    );
    let own = ["python3", "-B", path, "--port", "{port}", "--repository"];
    let words = own.iter().chain(arguments);
    let program = Program {
        command: words.map(|word| (*word).to_owned()).collect(),
        ..Program::default()
    };
    let mut config = RemoteConfig::new(NAME, Source::Command(program));
    config.load = Load::Repository;
    config.ready_timeout = Duration::from_secs(60);
    config
}

/// A manifest for a model of the runtime.
pub fn manifest(model: &str, weights_bytes: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"format":"sextant-remote/1","runtime":"{NAME}","model":"{model}","weights_bytes":{weights_bytes}}}"#
    ))
}

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}
