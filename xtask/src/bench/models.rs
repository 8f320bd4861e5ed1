//! Models as common libraries export them: how many register with the plain command, whether their measured accuracy is
//! that of the library itself, and how long registration takes. The same is measured for trained models that others
//! publish.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Arguments;
use super::bed::Bench;
use super::median;
use super::report::{Figure, Report};
use crate::provision::{self, python};
use crate::server::Server;
use crate::{paths, shell};

mod gain;
mod large;

/// The parts that `--parts` may name.
pub const PARTS: [&str; 4] = ["exports", "published", "gain", "large"];

/// The exporting libraries with pinned versions.
const REQUIREMENTS: &str = include_str!("../../exports-requirements.txt");

/// Largest distance between an accuracy of the variant in single precision and the library's own: absolute for
/// shares, relative for errors. The library computes in 64 bits.
const TOLERANCE: f64 = 0.01;

/// Settings for parts that measure what registers, not how fast variants are.
const QUICK: [&str; 2] = ["variants.effort=quick", "variants.budget_s=30"];

/// A model that was exported.
struct Export {
    name: String,
    metric: String,
    /// The accuracy that the library itself reaches.
    reaches: f64,
    /// The flags that the plain command lacks.
    flags: Vec<String>,
}

/// How a registration ended.
enum Outcome {
    Registered { took_s: f64, accuracy: f64 },
    Refused(String),
}

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if !PARTS.iter().any(|part| arguments.wants(part)) {
        return Ok(());
    }
    let bench = Bench::prepare(arguments, provision::runtime()?, "bench-models")?;
    let environment = bench.provisioned.cache.join("exports");
    let interpreter = python::environment(&environment, REQUIREMENTS)?;
    let folder = paths::target("exports");
    if arguments.wants("exports") || arguments.wants("gain") {
        shell::run(python::script(&interpreter, "exports.py").arg(&folder))?;
    }
    if arguments.wants("exports") {
        register_all(&bench, ("exports", &folder), &[], report)?;
    }
    if arguments.wants("published") {
        let folder = paths::target("published");
        shell::run(python::script(&interpreter, "published.py").arg(&folder))?;
        register_all(&bench, ("published", &folder), &QUICK, report)?;
    }
    if arguments.wants("gain") {
        gain::run(&bench, &folder, report)?;
    }
    if arguments.wants("large") {
        large::run(&bench, report)?;
    }
    Ok(())
}

/// Registers all models of a folder as their users would.
fn register_all(
    bench: &Bench<'_>,
    (what, folder): (&str, &PathBuf),
    settings: &[&str],
    report: &mut Report,
) -> Result<()> {
    let exports = read(folder)?;
    let server = bench.sextant(what, settings)?;
    let (mut plain, mut flagged, mut exact, mut times) = (0, 0, 0, Vec::new());
    for export in &exports {
        let outcome = register(bench, &server, (folder, export), &[])?;
        let outcome = match outcome {
            Outcome::Registered { .. } => {
                plain += 1;
                outcome
            }
            Outcome::Refused(reason) if export.flags.is_empty() => Outcome::Refused(reason),
            Outcome::Refused(reason) => {
                let again = register(bench, &server, (folder, export), &export.flags)?;
                let flags = export.flags.join(" ");
                let named = flags.split_inclusive('=').next().unwrap_or_default();
                let is_named = reason.contains(named);
                flagged += usize::from(is_named && matches!(again, Outcome::Registered { .. }));
                again
            }
        };
        match outcome {
            Outcome::Refused(reason) => eprintln!("{}: {reason}", export.name),
            Outcome::Registered { took_s, accuracy } => {
                times.push(took_s);
                let is_same = export.agrees(accuracy);
                exact += usize::from(is_same);
                if !is_same {
                    let reaches = export.reaches;
                    eprintln!(
                        "{}: {accuracy} where the library reaches {reaches}",
                        export.name
                    );
                }
            }
        }
    }
    let count = exports.len() as f64;
    let mut figure = |metric: &str, value: f64, unit, goal| {
        let metric = format!("{what}{metric}");
        report.add(Figure::new("models", &metric, value, unit, goal));
    };
    figure("", count, "count", None);
    let share = plain as f64 / count;
    figure("_registered_ratio", share, "ratio", Some(">= 0.95"));
    let share = (plain + flagged) as f64 / count;
    figure("_registered_with_flag_ratio", share, "ratio", Some("1"));
    let share = exact as f64 / times.len().max(1) as f64;
    figure("_accuracy_agrees_ratio", share, "ratio", Some("1"));
    figure("_registration_s", median(times), "s", None);
    Ok(())
}

fn read(folder: &Path) -> Result<Vec<Export>> {
    let text = std::fs::read_to_string(folder.join("exports.json"))?;
    let index: serde_json::Map<String, Value> = serde_json::from_str(&text)?;
    let export = |(name, of): (String, Value)| {
        let flags = of["flags"].as_array().into_iter().flatten();
        Some(Export {
            metric: of["metric"].as_str()?.to_owned(),
            reaches: of["reaches"].as_f64()?,
            flags: flags.filter_map(Value::as_str).map(str::to_owned).collect(),
            name,
        })
    };
    let exports: Option<Vec<_>> = index.into_iter().map(export).collect();
    exports.context("`exports.json` lacks a member")
}

/// Registers an export for an application of its own, as its user would.
fn register(
    bench: &Bench<'_>,
    server: &Server,
    (folder, export): (&PathBuf, &Export),
    flags: &[String],
) -> Result<Outcome> {
    let begun = Instant::now();
    let name = &export.name;
    let set = folder.join(format!("{name}.npz"));
    let arrays = std::fs::read(&set)?;
    let has_labels = arrays.windows(10).any(|word| word == b"labels.npy");
    let mut command = shell::command(&bench.binary);
    command
        .args([
            "--server",
            &format!("http://{}", server.address),
            "--json",
            "register",
        ])
        .args([
            "--application",
            name,
            "--name",
            name,
            "--metric",
            &export.metric,
        ])
        .arg("--model")
        .arg(folder.join(format!("{name}.onnx")))
        .arg("--validation")
        .arg(&set)
        .args((!has_labels).then_some("--no-labels"))
        .args(flags);
    let output = command.output().context("`sextant` cannot be run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Ok(Outcome::Refused(last.to_owned()));
    }
    let took_s = begun.elapsed().as_secs_f64();
    let path = format!("/v1/models/{name}/variants");
    let answer = server.connect()?.get(&path)?.json()?;
    let mut variants = answer["variants"].as_array().into_iter().flatten();
    let single = variants.find(|of| of["precision"] == "fp32" && of["engine"] == "ort");
    let accuracy = single.and_then(|of| of["accuracy"]["value"].as_f64());
    Ok(Outcome::Registered {
        took_s,
        accuracy: accuracy
            .with_context(|| format!("`{name}` has no variant in single precision"))?,
    })
}

// === impl Export ===

impl Export {
    /// Whether a measured accuracy agrees with the library's.
    fn agrees(&self, accuracy: f64) -> bool {
        let scale = match self.metric.as_str() {
            "mae" => self.reaches.abs().max(1.0),
            _ => 1.0,
        };
        (accuracy - self.reaches).abs() <= TOLERANCE * scale
    }
}
