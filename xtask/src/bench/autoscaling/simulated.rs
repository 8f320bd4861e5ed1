//! The same queries on the same variants and devices in the fleet simulation, `sextant simulate`.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    arrivals::{Arrival, Shape},
    service::{APPLICATIONS, HOLD_S, POOLS, Service, measured, variants},
};
use crate::shell;

/// The time of a LOAD if none was seen and the variant has no measured time, ms.
const UNKNOWN_LOAD_MS: f64 = 1.0;

/// Values that were measured beside the service and go into the simulation.
pub struct Measurements {
    /// For each pool, the time from the order of a machine until its worker is up, s.
    pub start_s: [f64; POOLS.len()],
    /// For each variant, the time of a LOAD, ms.
    pub load_ms: BTreeMap<String, f64>,
}

/// Writes the experiment `fleet.toml` and its queries into the service's data folder; returns the
/// experiment's path.
pub fn write(
    service: &Service,
    arrivals: &[Arrival],
    shape: &Shape,
    measured: &Measurements,
) -> Result<PathBuf> {
    let mut queries = "timestamp,model\n".to_owned();
    for Arrival { at_s, application } in arrivals {
        let name = APPLICATIONS[*application].name;
        writeln!(queries, "{at_s:.6},{name}")?;
    }
    std::fs::write(service.data.join("queries.csv"), queries)?;
    let mut text = head(shape, &devices(service, measured)?);
    for of in &APPLICATIONS {
        let name = of.name;
        writeln!(text, "\n[[application]]\nname = \"{name}\"")?;
        for variant in variants(&service.server, name)? {
            text.push_str(&described(&variant, measured)?);
        }
        let target_ms = of.target_ms;
        writeln!(
            text,
            "\n[[class]]\napplication = \"{name}\"\nlatency_ms = {target_ms:?}"
        )?;
    }
    let file = service.data.join("fleet.toml");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Runs the experiment and returns its figures by name.
pub fn play(binary: &Path, experiment: &Path) -> Result<BTreeMap<String, f64>> {
    let mut command = shell::command(binary);
    command
        .args(["simulate", "--fleet"])
        .arg(experiment)
        .args(["--policy", "sextant", "--json"]);
    eprintln!("$ {}", shell::show(&command));
    let mut figures = BTreeMap::new();
    for line in shell::output(&mut command)?.lines() {
        let record: Value = serde_json::from_str(line)?;
        if let (Some(metric), Some(value)) = (record["metric"].as_str(), record["value"].as_f64()) {
            figures.insert(metric.to_owned(), value);
        }
    }
    ensure!(!figures.is_empty(), "the simulation has no figures");
    Ok(figures)
}

fn head(shape: &Shape, devices: &str) -> String {
    let Shape {
        warm_up_s,
        measured_s,
        ..
    } = shape;
    format!(
        "kind = \"fleet\"\nname = \"live\"\ntitle = \"A live run, replayed\"\n\
         policies = [\"sextant\"]\nwarm_up_s = {warm_up_s:?}\nmeasured_s = {measured_s:?}\n\
         scaling = {{ hold_s = {HOLD_S} }}\nload = {{ recorded = \"queries.csv\" }}\n{devices}"
    )
}

fn devices(service: &Service, measured: &Measurements) -> Result<String> {
    let workers = service.server.connect()?.get("/v1/workers")?.json()?;
    let memory_bytes = workers["workers"][0]["memory_bytes"].as_f64();
    let memory_mb = memory_bytes.context("no worker says how much memory it has")? / 1e6;
    let mut text = String::new();
    for (of, start_s) in POOLS.iter().zip(measured.start_s) {
        write!(
            text,
            "\n[[device]]\nname = \"{}\"\nprice_per_hour_usd = {:?}\nmemory_mb = {memory_mb:.0}\n\
             start_s = {start_s:.3}\nleast = {}\nmost = {}\n",
            of.name, of.hour_usd, of.least, of.most
        )?;
    }
    Ok(text)
}

/// A variant with its accuracy and its measured run times; an empty text if it was not measured on any of the devices.
fn described(variant: &Value, of: &Measurements) -> Result<String> {
    let number = |field: &Value, name: &str| {
        let found = field.as_f64();
        found.with_context(|| format!("a variant has no `{name}`"))
    };
    let name = variant["name"].as_str().context("a variant has no name")?;
    let profiles = measured(variant);
    let on = POOLS.iter().zip(profiles);
    let on = on.filter_map(|(pool, profile)| Some((pool, points(profile?))));
    let on: Vec<String> = on
        .map(|(pool, points)| format!("{} = {{ points = [{points}] }}", pool.name))
        .collect();
    if on.is_empty() {
        return Ok(String::new());
    }
    let load_ms = of.load_ms.get(name).copied();
    let load_ms = load_ms.or_else(|| variant["load_ms"].as_f64());
    let bytes = number(&variant["peak_memory_bytes"], "peak_memory_bytes")?;
    Ok(format!(
        "\n[[application.variant]]\nname = \"{name}\"\naccuracy = {:?}\nmemory_mb = {:.0}\n\
         load_ms = {:.3}\nmax_rows = {}\non = {{ {} }}\n",
        number(&variant["accuracy"]["lower"], "accuracy.lower")?,
        (bytes / 1e6).ceil(),
        load_ms.unwrap_or(UNKNOWN_LOAD_MS),
        number(&variant["max_batch"], "max_batch")?,
        on.join(", ")
    ))
}

/// The medians as `[rows, ms]`, which never fall.
fn points(profile: &Value) -> String {
    let mut most = 0.0f64;
    let rows = profile["latency"].as_array().into_iter().flatten();
    let points = rows.filter_map(|of| {
        most = most.max(of["p50_ms"].as_f64()?);
        Some(format!("[{}, {most:.4}]", of["batch"].as_u64()?))
    });
    points.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variant_has_what_was_measured_on_the_pools_and_nothing_else() {
        let mut variant = json!({
            "name": "v", "accuracy": {"lower": 0.5}, "peak_memory_bytes": 1_500_000,
            "load_ms": 4.0, "max_batch": 8,
            "profiles": [
                {"device_type": "cpu-2", "estimated": false, "latency": [{"batch": 1, "p50_ms": 0.2}]},
                {"device_type": "large", "estimated": true, "latency": [{"batch": 1, "p50_ms": 0.2}]},
                {"device_type": "small", "estimated": false, "latency": [
                    {"batch": 1, "p50_ms": 29.0}, {"batch": 2, "p50_ms": 28.5}, {"batch": 8, "p50_ms": 160.0}
                ]},
            ],
        });
        let measured = Measurements {
            start_s: [1.0; POOLS.len()],
            load_ms: BTreeMap::from([("v".to_owned(), 380.0)]),
        };
        let text = described(&variant, &measured).unwrap();
        for part in [
            "name = \"v\"",
            "accuracy = 0.5",
            "memory_mb = 2",
            "load_ms = 380.000",
            "max_rows = 8",
            "on = { small = { points = [[1, 29.0000], [2, 29.0000], [8, 160.0000]] } }",
        ] {
            assert!(text.contains(part), "`{part}` in {text}");
        }
        variant["profiles"] = json!([]);
        assert_eq!(described(&variant, &measured).unwrap(), "");
        assert!(described(&json!({}), &measured).is_err());
    }
}
