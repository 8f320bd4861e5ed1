//! Reads settings as `sextant serve` does, for tools that make environments and arguments, such as the test of the Helm
//! chart.
//!
//! The file that the argument names is a JSON list of `{"name": .., "environment": {..}, "arguments": [..]}`; of the
//! arguments only `--set` and `--role` are read. Prints what cannot be read, a line for each, and then fails.
#![expect(clippy::print_stderr, reason = "a program for the command line")]

use std::{collections::BTreeMap, fs, process::ExitCode};

use sextant_config::{Config, Flag, Sources};

/// A process that would be started.
#[derive(serde::Deserialize)]
struct Process {
    name: String,
    environment: BTreeMap<String, String>,
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let file = std::env::args().nth(1).unwrap_or_default();
    let read = fs::read(&file).map_err(|error| error.to_string());
    let processes: Vec<Process> = match read
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
    {
        Ok(processes) => processes,
        Err(error) => {
            eprintln!("`{file}`: {error}");
            return ExitCode::FAILURE;
        }
    };
    let wrong = processes.iter().filter_map(Process::wrong);
    match wrong.inspect(|line| eprintln!("{line}")).count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Process {
    /// What cannot be read of it.
    fn wrong(&self) -> Option<String> {
        let environment = self.environment.clone().into_iter();
        let behind = |flag: &str| {
            let pairs = self.arguments.windows(2).filter(|pair| pair[0] == flag);
            pairs.map(|pair| pair[1].clone()).collect::<Vec<_>>()
        };
        let roles = behind("--role").into_iter().map(|value| Flag {
            name: "--role",
            key: "roles",
            value,
        });
        let sources = Sources {
            environment: environment
                .filter(|(name, _)| name.starts_with("SEXTANT_"))
                .collect(),
            flags: roles.collect(),
            set: behind("--set"),
            ..Sources::default()
        };
        let error = Config::load(&sources).err()?;
        Some(format!("{}: {error}", self.name))
    }
}
