//! Models of other libraries, converted by `sextant register`: one of each kind, with the real libraries.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Bed, Check, KERAS};
use crate::provision::python;
use crate::server::Server;
use crate::{paths, shell};

/// PyTorch, its exporter, and what knows the models of Hugging Face: some gigabytes.
const TORCH: &str = include_str!("../../compatibility/torch-requirements.txt");

/// Largest difference between the library's numbers, which are about 1, and the service's: the variant that answers may compute in
/// a narrower precision.
const TOLERANCE: f64 = 0.02;

/// A library whose models are converted.
struct Library<'a> {
    /// What the script calls it.
    name: &'static str,
    /// The environment in the cache.
    environment: &'static str,
    requirements: &'a str,
}

const LIBRARIES: [Library<'static>; 2] = [
    Library {
        name: "torch",
        environment: "python-torch",
        requirements: TORCH,
    },
    Library {
        name: "keras",
        environment: "python-keras",
        requirements: KERAS,
    },
];

// === impl Bed ===

impl Bed {
    /// Each library's models.
    pub(super) fn converters(&self, server: &Server) -> Result<Vec<Check>> {
        let mut checks = Vec::new();
        for library in LIBRARIES {
            let environment = self.provisioned.cache.join(library.environment);
            let interpreter = python::environment(&environment, library.requirements)?;
            let folder = paths::empty_target(&format!("compatibility-{}", library.name))?;
            let mut script = python::script(&interpreter, "compatibility/converters.py");
            let cases = shell::output(script.arg(library.name).arg(&folder))?;
            let cases = cases.lines().map(serde_json::from_str::<Value>);
            // What libraries print themselves is no case.
            for case in cases.filter_map(Result::ok).filter(Value::is_object) {
                let passed = self.converted(server, &interpreter, &folder, &case);
                checks.push(Check {
                    suite: "converters",
                    name: text(&case, "name").to_owned(),
                    failure: passed.err().map(|error| format!("{error:#}")),
                });
            }
        }
        Ok(checks)
    }

    /// Registers a model, and asks it what its library was asked.
    fn converted(
        &self,
        server: &Server,
        interpreter: &Path,
        folder: &Path,
        case: &Value,
    ) -> Result<()> {
        let name = text(case, "name");
        let mut command = shell::command(&self.binary);
        command
            .current_dir(folder)
            .args(["--server", &format!("http://{}", server.address)])
            .args(["register", "--application", name, "--name", name])
            .args(["--model", text(case, "model")])
            .args(["--validation", text(case, "validation"), "--python"])
            .arg(interpreter);
        if case["trust"] == true {
            command.arg("--trust");
        }
        let output = shell::results(&mut command)?;
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if !output.status.success() {
            bail!("it is not registered: {}", said.trim());
        }
        shell::say(said.lines().take(4).collect::<Vec<_>>().join("\n"));
        let query = json!({"application": name, "inputs": case["inputs"]});
        let answer = server.ask("/v1/queries", &query)?;
        let (ours, theirs) = (
            numbers(&answer["outputs"][0]["data"])?,
            numbers(&case["answer"])?,
        );
        let apart = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
        let most = apart.fold(0.0, f64::max);
        if ours.len() != theirs.len() || most > TOLERANCE {
            bail!("{theirs:?} from its library, {ours:?} here");
        }
        Ok(())
    }
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

fn numbers(data: &Value) -> Result<Vec<f64>> {
    let data = data.as_array().context("no numbers")?;
    Ok(data.iter().filter_map(Value::as_f64).collect())
}
