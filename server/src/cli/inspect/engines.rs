//! Which engines of this machine load a model.
//!
//! Each loads it in a process of its own: what is wrong with a model can end the process that loads it.

use std::{
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
};

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use sextant_engine::{Engine, LoadRequest, STACK_BYTES};
use sextant_objects::digest_of;
use sextant_types::{Optimization, Precision};

use crate::{cli::Error, serve::engines};

/// Have an engine load the model on standard input, and print what keeps it from that.
#[derive(Debug, Args)]
pub struct Load {
    engine: String,
}

/// An engine, and what keeps it from running a model.
pub(super) struct Able {
    name: String,
    trouble: Option<String>,
}

/// Has each engine load the model.
pub(super) fn able(model: &Bytes) -> Vec<Able> {
    let able = engines::usual().into_iter().map(|name| Able {
        trouble: match elsewhere(&name, model) {
            Ok(output) => trouble(&output),
            Err(error) => Some(format!("no process for it can be started: {error}")),
        },
        name,
    });
    able.collect()
}

/// Has an engine load the model in a process of its own.
fn elsewhere(engine: &str, model: &Bytes) -> io::Result<Output> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["load", engine])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Where it has ended already, its status tells more.
        stdin.write_all(model).ok();
    }
    child.wait_with_output()
}

fn trouble(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let ended = match (output.status.signal(), output.status.code()) {
        (Some(signal), _) => {
            format!("it ends the process that loads the model, with signal {signal}")
        }
        (None, Some(0)) => String::new(),
        (None, code) => format!(
            "it ends the process that loads the model, with status {}",
            code.unwrap_or_default()
        ),
    };
    [ended, said].into_iter().find(|it| !it.is_empty())
}

/// Why an engine does not load it. Some recurse deeply: it gets the stack that it gets in the service.
fn load(engine: Arc<dyn Engine>, model: Bytes) -> Option<String> {
    let request = LoadRequest {
        artefact: digest_of(&model),
        model,
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let loading = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || engine.load(&request).err().map(|error| error.to_string()));
    match loading.map(thread::JoinHandle::join) {
        Ok(Ok(trouble)) => trouble,
        Ok(Err(_)) => Some("it panics while it loads the model".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

// === impl Load ===

impl Load {
    /// Does it.
    pub fn run(&self, output: crate::cli::Output) -> Result<(), Error> {
        let mut model = Vec::new();
        let read = io::stdin().read_to_end(&mut model);
        read.map_err(|source| Error::Io {
            path: "/dev/stdin".into(),
            source,
        })?;
        let trouble = match engines::named(&self.engine) {
            Err(missing) => Some(format!("{missing:#}")),
            Ok(engine) => load(engine, model.into()),
        };
        trouble.map_or(Ok(()), |trouble| output.text(&trouble))
    }
}

// === impl Able ===

impl Able {
    pub(super) fn document(&self) -> Value {
        json!({"name": self.name, "runs": self.trouble.is_none(), "reason": self.trouble})
    }

    pub(super) fn line(&self) -> String {
        match &self.trouble {
            None => format!("  {}  loads it\n", self.name),
            Some(trouble) => format!("  {}  does not: {}\n", self.name, trouble.trim()),
        }
    }
}
