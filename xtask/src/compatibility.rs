//! `cargo xtask compatibility`: runs clients and testers of others against a service.
//!
//! Each suite comes from the package index, pinned in `xtask/compatibility/requirements.txt`. It runs against a service
//! of its own that has the application `digits` with one model. Failures are printed with their reasons and explained
//! in docs/compatibility.md.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::json;

use crate::provision::{self, Provisions, python};
use crate::server::{self, Server};
use crate::{demo, paths, shell};

mod clients;
mod converters;
mod perf;
mod runtimes;
mod triton_qa;

const REQUIREMENTS: &str = include_str!("../compatibility/requirements.txt");

/// The libraries with which the examples train.
const EXPORTERS: &str = include_str!("../exports-requirements.txt");

/// TensorFlow, which needs an environment of its own.
const KERAS: &str = include_str!("../compatibility/keras-requirements.txt");

/// Suites whose number of passed checks is reported as a figure.
const FIGURES: [(&str, &str); 7] = [
    ("converters", "converted_models_passed"),
    ("tritonclient", "tritonclient_calls_passed"),
    ("kserve", "kserve_calls_passed"),
    ("reflection", "reflection_checks_passed"),
    ("perf_analyzer", "perf_analyzer_modes_passed"),
    ("runtimes", "runtime_checks_passed"),
    ("triton_qa", "triton_qa_suites_passed"),
];

/// A setting that measures few runs of each variant.
const QUICK: &str = "variants.effort=quick";

/// Inputs that schemathesis generates for each operation.
const EXAMPLES: &str = "25";

/// Options of `cargo xtask compatibility`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which suites to run [default: all but triton-qa and converters]
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// Print one JSON object for each check
    #[arg(long)]
    json: bool,
    /// Seed of what is made up
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// Requests made up from the OpenAPI document: no fault, no answer that it does not describe
    Schemathesis,
    /// The calls of Triton's clients: over HTTP in JSON and with binary tensors, over gRPC
    Tritonclient,
    /// The calls of KServe's clients, REST and gRPC
    Kserve,
    /// What generic gRPC tools do with reflection alone
    Reflection,
    /// NVIDIA's perf_analyzer in five modes
    PerfAnalyzer,
    /// The scripts of `examples/models`, each with a library that people train with
    Examples,
    /// MLServer and Triton as runtimes of models: registered, asked, ended and started again
    Runtimes,
    /// Models of PyTorch, Hugging Face, Keras and TensorFlow, converted with the real libraries, of which PyTorch alone takes 6 GB
    Converters,
    /// Triton's own QA, which is fetched from GitHub
    TritonQa,
}

/// One check.
#[derive(Debug)]
struct Check {
    suite: &'static str,
    name: String,
    /// Why it failed; `None` if it passed.
    failure: Option<String>,
}

/// The service against which suites run.
struct Bed {
    provisioned: Provisions,
    binary: PathBuf,
    python: PathBuf,
}

/// Runs the suites; fails if a check fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let provisioned = provision::runtime()?;
    let folder = provisioned.cache.join("python-compatibility");
    let bed = Bed {
        python: python::environment(&folder, REQUIREMENTS)?,
        binary: server::build()?,
        provisioned,
    };
    let suites: Vec<Suite> = match arguments.suites.is_empty() {
        // Suites that are in no package index, or are very large, run only if they are named.
        true => Suite::value_variants()
            .iter()
            .copied()
            .filter(|suite| !matches!(suite, Suite::TritonQa | Suite::Converters))
            .collect(),
        false => arguments.suites.clone(),
    };
    let mut checks = Vec::new();
    for suite in suites {
        let server = || bed.serve(&[]);
        checks.extend(match suite {
            Suite::Schemathesis => bed.schemathesis(&server()?, arguments.seed)?,
            Suite::Tritonclient => bed.tritonclient(&server()?)?,
            Suite::Kserve => bed.kserve(&server()?)?,
            Suite::Reflection => bed.reflection(&server()?)?,
            Suite::PerfAnalyzer => bed.perf_analyzer(&server()?)?,
            Suite::Examples => bed.examples(&server()?)?,
            Suite::Runtimes => bed.runtimes()?,
            Suite::Converters => bed.converters(&bed.serve(&[QUICK.to_owned()])?)?,
            Suite::TritonQa => bed.triton_qa()?,
        });
    }
    print(&checks, arguments.json);
    Ok(match checks.iter().all(|check| check.failure.is_none()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print(checks: &[Check], as_json: bool) {
    for check in checks {
        match (&check.failure, as_json) {
            (failure, true) => println!(
                "{}",
                json!({"suite": check.suite, "check": check.name, "failure": failure})
            ),
            (None, _) => println!("passed  {}: {}", check.suite, check.name),
            (Some(why), _) => println!("FAILED  {}: {}: {why}", check.suite, check.name),
        }
    }
    if as_json {
        for (suite, metric) in FIGURES {
            figure(checks, suite, metric);
        }
    }
    let passed = checks.iter().filter(|check| check.failure.is_none());
    shell::say(format!("{} of {} passed", passed.count(), checks.len()));
}

/// Reports how many checks of a suite passed, if the suite ran.
fn figure(checks: &[Check], suite: &str, metric: &str) {
    let own: Vec<_> = checks.iter().filter(|check| check.suite == suite).collect();
    let passed = own.iter().filter(|check| check.failure.is_none()).count();
    if !own.is_empty() {
        let said = json!({"experiment": "compatibility", "metric": metric, "value": passed,
            "unit": format!("of {}", own.len())});
        println!("{said}");
    }
}

// === impl Bed ===

impl Bed {
    /// A service with one model and these settings.
    fn serve(&self, settings: &[String]) -> Result<Server> {
        let address = server::free_address()?;
        let data = paths::empty_target("compatibility")?;
        let mut command = server::sextant(&self.binary, &self.provisioned, address, &data);
        // Clients on this machine that measure the service use shared memory.
        command.args(["--set", "v2.shared_memory=true"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let server = Server::start("sextant", command, address, "/health/ready")?;
        demo::register_model(&self.binary, address, ("digits", "mlp"))?;
        Ok(server)
    }

    /// Sends everything that the document allows, and some requests that it does not allow.
    fn schemathesis(&self, server: &Server, seed: u64) -> Result<Vec<Check>> {
        let program = self.python.with_file_name("schemathesis");
        let checks = [
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        ];
        let output = shell::results(
            shell::command(program)
                .arg("run")
                .arg(format!("http://{}/openapi.json", server.address))
                .args(["--checks", &checks.join(",")])
                .args(["--max-examples", EXAMPLES, "--seed", &seed.to_string()])
                // The first stream does not end, and for both streams schemathesis would compare each event with the
                // schema of the whole stream.
                .args(["--exclude-path", "/v1/scaling/events"])
                .args(["--exclude-path", "/v1/jobs/{job}/events", "--no-color"]),
        )?;
        let said = String::from_utf8_lossy(&output.stdout);
        let counted = said
            .lines()
            .find(|line| line.contains("generated,"))
            .with_context(|| format!("schemathesis says nothing of its cases: {said}"))?;
        let failures = said.split("= FAILURES =").nth(1);
        Ok(vec![Check {
            suite: "schemathesis",
            name: format!("{} (seed {seed})", counted.trim()),
            failure: match output.status.success() {
                true => None,
                false => Some(failures.unwrap_or(&said).to_owned()),
            },
        }])
    }

    /// Runs the examples as their readme says, except for the folder of the client package.
    fn examples(&self, server: &Server) -> Result<Vec<Check>> {
        let cache = &self.provisioned.cache;
        let trees = python::environment(&cache.join("exports"), EXPORTERS)?;
        let keras = python::environment(&cache.join("python-keras"), KERAS)?;
        let scripts = [
            ("scikit_learn", &trees),
            ("lightgbm_trees", &trees),
            ("xgboost_regression", &trees),
            ("keras_images", &keras),
        ];
        let folder = paths::empty_target("compatibility-examples")?;
        let check = |(name, interpreter): (&str, &PathBuf)| {
            let script = paths::root().join(format!("examples/models/{name}.py"));
            let mut command = shell::command(interpreter);
            command
                .current_dir(&folder)
                .arg(script)
                .arg(format!("http://{}", server.address))
                .env("PYTHONPATH", paths::root().join("sdk/python/src"));
            let output = shell::results(&mut command)?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(Check {
                suite: "examples",
                name: name.to_owned(),
                failure: (!output.status.success()).then_some(said),
            })
        };
        scripts.into_iter().map(check).collect()
    }
}
