//! Applications and variants from the service's answers, in the form of an experiment, with everything that the
//! service's selection and planner need.

use std::collections::BTreeMap;

use serde_json::Value;
use sextant_types::Metric;
use toml::{Table, Value as Toml};

use super::metric;
use crate::cli::{
    Error,
    output::{cell, rows},
};

/// Texts that a registry knows of a variant, by their name in the service's answer.
const TEXTS: [&str; 6] = [
    "model",
    "engine",
    "precision",
    "artefact",
    "dominated_by",
    "measured_on",
];

/// Numbers of bytes that a registry knows of a variant.
const SIZES: [&str; 2] = ["weights_bytes", "peak_memory_bytes"];

/// What an application may use of the fleet.
const RESOURCES: [&str; 5] = [
    "budget_per_hour_usd",
    "least_workers",
    "most_workers",
    "priority",
    "weight",
];

/// An application with all of its variants, of which one of the devices must run one.
pub(super) fn application(of: &Value, devices: &BTreeMap<String, Toml>) -> Result<Toml, Error> {
    let name = cell(&of["about"], "/name");
    let metric = metric(&of["about"]);
    let all = rows(of, "/variants").iter();
    let variants: Vec<Table> = all.map(|it| variant(it, metric, devices)).collect();
    let runs = |it: &Table| it["on"].as_table().is_some_and(|on| !on.is_empty());
    if !variants.iter().any(runs) {
        return Err(Error::Usage(format!(
            "no variant of `{name}` has a profile on any of the devices: {}",
            devices.keys().cloned().collect::<Vec<_>>().join(", ")
        )));
    }
    let variants = variants.into_iter().map(Toml::Table).collect();
    let mut table = Table::new();
    table.insert("name".to_owned(), name.into());
    table.insert("marked".to_owned(), true.into());
    let resources = resources(&of["about"]["resources"]);
    table.insert("resources".to_owned(), Toml::Table(resources));
    table.insert("variant".to_owned(), Toml::Array(variants));
    Ok(Toml::Table(table))
}

fn resources(of: &Value) -> Table {
    let set = RESOURCES.iter().filter_map(|key| {
        let value = of.get(*key)?;
        let whole = value.as_i64().filter(|_| !is_fraction(key)).map(Toml::from);
        Some((
            (*key).to_owned(),
            whole.or_else(|| Some(value.as_f64()?.into()))?,
        ))
    });
    set.collect()
}

/// Whether a resource may be a part of a whole number.
fn is_fraction(key: &str) -> bool {
    matches!(key, "budget_per_hour_usd" | "weight")
}

fn variant(of: &Value, metric: Metric, devices: &BTreeMap<String, Toml>) -> Table {
    let number = |pointer: &str| of.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let known = rows(of, "/profiles").iter();
    let known = known.filter(|profile| devices.contains_key(&cell(profile, "/device_type")));
    let known: Vec<&Value> = known.collect();
    let load_ms = known
        .iter()
        .filter_map(|profile| profile["load_ms"].as_f64());
    let load_ms = load_ms.fold(0.0, f64::max);
    let on = known.iter().filter_map(|profile| {
        let curve = measured(profile)?;
        Some((cell(profile, "/device_type"), Toml::Table(curve)))
    });
    let on: Table = on.collect();
    let unfavourable = match metric.higher_is_better() {
        true => "/accuracy/lower",
        false => "/accuracy/upper",
    };
    let memory_mb = (number("/peak_memory_bytes") / 1e6).ceil().max(1.0);
    let mut table = Table::new();
    table.insert("name".to_owned(), cell(of, "/name").into());
    let accuracy = metric.quality(number(unfavourable));
    table.insert("accuracy".to_owned(), accuracy.into());
    let kind = of.pointer("/accuracy/kind").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind != "accuracy") {
        table.insert("agreement".to_owned(), true.into());
    }
    table.insert("memory_mb".to_owned(), (memory_mb as i64).into());
    table.insert("load_ms".to_owned(), load_ms.into());
    let slots = number("/threads").max(1.0);
    table.insert("slots".to_owned(), (slots as i64).into());
    let max_rows = number("/max_batch").max(1.0);
    table.insert("max_rows".to_owned(), (max_rows as i64).into());
    table.insert("registered".to_owned(), Toml::Table(registered(of, metric)));
    table.insert("on".to_owned(), Toml::Table(on));
    table
}

/// What the registry knows beside that.
fn registered(of: &Value, metric: Metric) -> Table {
    let texts = TEXTS.iter().filter_map(|key| {
        let text = of.get(*key)?.as_str()?;
        Some(((*key).to_owned(), text.into()))
    });
    let mut table: Table = texts.collect();
    for key in SIZES {
        if let Some(bytes) = of.get(key).and_then(Value::as_i64) {
            table.insert(key.to_owned(), bytes.into());
        }
    }
    if let Some(value) = of.pointer("/accuracy/value").and_then(Value::as_f64) {
        table.insert("value".to_owned(), metric.quality(value).into());
    }
    if of.get("apart").is_some() {
        table.insert("apart".to_owned(), true.into());
    }
    table
}

/// What was measured on a type of device, or is expected there.
fn measured(profile: &Value) -> Option<Table> {
    let latency = rows(profile, "/latency").iter();
    let measured = latency.filter_map(|of| {
        let p50_ms = of["p50_ms"].as_f64()?;
        let p99_ms = of["p99_ms"].as_f64().unwrap_or(p50_ms);
        Some((of["batch"].as_i64()?, p50_ms, p99_ms))
    });
    let mut measured: Vec<(i64, f64, f64)> = measured.collect();
    measured.sort_by_key(|(rows, ..)| *rows);
    measured.dedup_by_key(|(rows, ..)| *rows);
    let (first, p50_ms, _) = *measured.first()?;
    let load_ms = profile["load_ms"].as_f64().unwrap_or(0.0);
    let saturation_rps = profile["saturation_rps"].as_f64();
    let saturation_rps = saturation_rps.unwrap_or(first as f64 / p50_ms.max(1e-9) * 1e3);
    let measured = measured
        .into_iter()
        .map(|(rows, p50_ms, p99_ms)| Toml::Array(vec![rows.into(), p50_ms.into(), p99_ms.into()]));
    let mut table = Table::new();
    table.insert("measured".to_owned(), Toml::Array(measured.collect()));
    table.insert("load_ms".to_owned(), load_ms.into());
    table.insert("saturation_rps".to_owned(), saturation_rps.into());
    Some(table)
}
