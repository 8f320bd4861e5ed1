//! The gain of a registration: the rows per second, on one core, of the best variant that is as accurate as the
//! uploaded file within its interval, over those of the file as ONNX Runtime runs it unchanged.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::bed::Bench;
use super::super::report::{Figure, Report};
use crate::{models, shell};

/// Models of `target/models`: a dense network, two convolutional ones, a transformer.
const BUILT: [&str; 4] = ["mlp", FITTED, RANDOM, "encoder"];

/// The convolutional network that was fitted to its task.
const FITTED: &str = "resnet18_textures";

/// The same network with random weights only. Its thousand classes are nearly tied, so any rounding changes some
/// answers. It has a mean of its own.
const RANDOM: &str = "resnet18";

/// An ensemble of trees among the exports.
const TREES: &str = "lightgbm-binary";

/// Measures all models; `exports` is the folder with the exports.
pub fn run(bench: &Bench<'_>, exports: &Path, report: &mut Report) -> Result<()> {
    let folder = models::write(&bench.provisioned.python, &BUILT)?;
    let server = bench.sextant("gain", &[])?;
    let mut gains = Vec::new();
    let files = |folder: &Path, name: &str, validation: &str| {
        (folder.join(format!("{name}.onnx")), folder.join(validation))
    };
    let built = BUILT.map(|name| {
        (
            name,
            files(&folder, name, &format!("{name}-validation.npz")),
        )
    });
    let trees = files(exports, TREES, &format!("{TREES}.npz"));
    for (name, (model, validation)) in built.into_iter().chain([(TREES, trees)]) {
        let begun = Instant::now();
        let address = format!("http://{}", server.address);
        shell::run(
            shell::command(&bench.binary)
                .args(["--server", &address, "register", "--metric", "top1"])
                .args(["--application", name, "--name", name, "--model"])
                .arg(model)
                .arg("--validation")
                .arg(validation),
        )?;
        let took_s = begun.elapsed().as_secs_f64();
        let path = format!("/v1/models/{name}/variants");
        let answer = server.connect()?.get(&path)?.json()?;
        let (best, gain) = gain(&answer["variants"])
            .with_context(|| format!("`{name}` has no variant as it was uploaded"))?;
        eprintln!("{name}: {gain:.2} x with {best}");
        gains.push((name, gain));
        let registration = Figure::new("models", "registration_s", took_s, "s", None);
        report.add(registration.of(name));
        report.add(Figure::new("models", "best_variant_gain", gain, "ratio", None).of(name));
    }
    for (metric, without, goal) in [
        ("best_variant_gain_geometric_mean", RANDOM, Some(">= 1.6")),
        (
            "best_variant_gain_geometric_mean_random_weights",
            FITTED,
            None,
        ),
    ] {
        let counted = gains.iter().filter(|(name, _)| *name != without);
        let logarithms: Vec<f64> = counted.map(|(_, gain)| gain.ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        report.add(Figure::new("models", metric, mean.exp(), "ratio", goal));
    }
    Ok(())
}

/// The best of a model's variants on one core, and how many times as fast as the uploaded file it is.
fn gain(variants: &Value) -> Option<(String, f64)> {
    let variants = variants.as_array()?;
    let alone = || variants.iter().filter(|of| of["threads"] == 1);
    let rate = |of: &Value| of["saturation_rps"].as_f64().unwrap_or(0.0);
    let by_rate = |a: &&Value, b: &&Value| rate(a).total_cmp(&rate(b));
    let uploaded = alone()
        .filter(|of| of["engine"] == "ort" && of["precision"] == "fp32")
        .max_by(by_rate)?;
    let least = uploaded["accuracy"]["lower"].as_f64()?;
    let accurate = alone().filter(|of| of["accuracy"]["value"].as_f64() >= Some(least));
    let best = accurate.max_by(by_rate)?;
    Some((
        best["name"].as_str()?.to_owned(),
        rate(best) / rate(uploaded),
    ))
}
