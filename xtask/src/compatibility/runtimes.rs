//! Servers of models that others have written, as runtimes of Sextant: a model of theirs is registered,
//! asked, and asked again after its server was ended and started anew.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Bed, Check};
use crate::bench::peers::contestants::Peer;
use crate::server::{self, Server};
use crate::{demo, paths, shell};

/// A server, and what a manifest says beside the names: Triton describes its models, MLServer does not.
const RUNTIMES: [(&str, bool); 2] = [("mlserver", false), ("nvidia-pytriton", true)];

/// How long a model may take to be answered again once its server is back.
const BACK: Duration = Duration::from_secs(20);

/// Largest difference between scores that the same file computes in two places.
const TOLERANCE: f64 = 1e-4;

// === impl Bed ===

impl Bed {
    /// Each of the servers.
    pub(super) fn runtimes(&self) -> Result<Vec<Check>> {
        let mut checks = Vec::new();
        for (name, describes) in RUNTIMES {
            checks.extend(self.runtime(name, describes)?);
        }
        Ok(checks)
    }

    fn runtime(&self, name: &'static str, describes: bool) -> Result<Vec<Check>> {
        let peer = Peer::named(name)?;
        let interpreter = peer.interpreter(&self.provisioned.cache)?;
        let folder = paths::empty_target("compatibility-runtimes")?;
        let file = paths::root().join("examples/digits/mlp.onnx");
        let address = server::free_address()?;
        let start = || peer.start(&interpreter, &file, address, &folder);
        let runtime = start()?;
        let server = self.serve(&[format!("worker.remote.{name}.url=http://{address}")])?;
        let manifest = folder.join("manifest.json");
        fs::write(&manifest, manifest_of(name, describes).to_string())?;
        let registered = shell::output(
            shell::command(&self.binary)
                .args(["--json", "--server", &format!("http://{}", server.address)])
                .args([
                    "register",
                    "--application",
                    "remote",
                    "--name",
                    name,
                    "--model",
                ])
                .arg(&manifest)
                .arg("--validation")
                .arg(paths::root().join("examples/digits/validation.npz")),
        )?;
        let registered: Value = serde_json::from_str(&registered)?;
        let mut checks = Vec::new();
        let mut check = |what: &str, passed: Result<()>| {
            checks.push(Check {
                suite: "runtimes",
                name: format!("{name}: {what}"),
                failure: passed.err().map(|error| format!("{error:#}")),
            });
        };
        let accurate = accuracy(&server, &registered["variants"][0]);
        check("its accuracy is that of the file", accurate);
        check("it answers what the file does", answers(&server));
        runtime.kill()?;
        check(
            "while it is away, queries are told to come later",
            becomes(&server, is_later),
        );
        let _runtime = start()?;
        check(
            "it is asked again when it is back",
            becomes(&server, is_answered),
        );
        Ok(checks)
    }
}

fn manifest_of(name: &str, describes: bool) -> Value {
    let mut manifest = json!({
        "format": "sextant-remote/1", "runtime": name, "model": "peer", "max_batch": 32,
    });
    if !describes {
        let tensor = |name: &str, columns: u32| json!([{"name": name, "datatype": "FP32", "shape": [-1, columns]}]);
        manifest["inputs"] = tensor("pixels", 64);
        manifest["outputs"] = tensor("scores", 10);
    }
    manifest
}

/// A query of the model in the runtime, or of the same file here.
fn query(to: (&str, &str)) -> Value {
    let mut query = demo::query(&json!({}));
    if let Some(members) = query.as_object_mut() {
        members.remove("application");
        members.insert(to.0.to_owned(), to.1.into());
    }
    query
}

fn numbers(answer: &Value) -> Result<Vec<f64>> {
    let data = answer["outputs"][0]["data"].as_array();
    let data = data.with_context(|| format!("no scores: {answer}"))?;
    Ok(data.iter().filter_map(Value::as_f64).collect())
}

/// The variant of this machine that computes as the file says.
fn here(server: &Server) -> Result<Value> {
    let response = server.connect()?.get("/v1/models/mlp/variants")?.json()?;
    let variants = response["variants"].as_array().cloned().unwrap_or_default();
    let mut exact = variants
        .into_iter()
        .filter(|variant| variant["precision"] == "fp32" && variant["engine"] == "ort");
    exact.next().context("`mlp` has no variant in fp32")
}

fn accuracy(server: &Server, remote: &Value) -> Result<()> {
    let (here, there) = (
        &here(server)?["accuracy"]["value"],
        &remote["accuracy"]["value"],
    );
    if !here.is_number() || here != there {
        bail!("{there} in the runtime, {here} here");
    }
    Ok(())
}

fn answers(server: &Server) -> Result<()> {
    let variant = here(server)?["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let here = numbers(&server.ask("/v1/queries", &query(("variant", &variant)))?)?;
    let there = numbers(&server.ask("/v1/queries", &query(("application", "remote")))?)?;
    let is_close = here
        .iter()
        .zip(&there)
        .all(|(a, b)| (a - b).abs() <= TOLERANCE);
    if here.len() != 10 || there.len() != 10 || !is_close {
        bail!("{there:?} in the runtime, {here:?} here");
    }
    Ok(())
}

/// Asks until the answer is as it should be, since the first ones may be those of a connection that broke.
fn becomes(server: &Server, is_right: fn(u16, &Value) -> bool) -> Result<()> {
    let until = Instant::now() + BACK;
    loop {
        let query = query(("application", "remote"));
        let response = server.connect()?.post("/v1/queries", &query)?;
        let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if is_right(response.status, &answer) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!(
                "{} and {answer} after {} s",
                response.status,
                BACK.as_secs()
            );
        }
        shell::pause(Duration::from_millis(200));
    }
}

/// A refusal that says when to come again.
fn is_later(status: u16, answer: &Value) -> bool {
    status == 503 && answer["retry_after_ms"].is_number()
}

fn is_answered(status: u16, answer: &Value) -> bool {
    status == 200 && numbers(answer).is_ok()
}
