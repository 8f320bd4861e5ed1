//! Reads the cells from an experiment's file.
//!
//! A cell's table is merged from `[defaults]`, its `[[cell]]` and one value of each `[[axis]]`. The cells are all
//! combinations; the last axis varies fastest. A `[[cell]]` with an `axis` or `cell_name` of its own does not use the
//! general ones. Keys that are not a cell's own belong to its groups: with `group = [..]` each entry overrides them,
//! without it they form the only group. `{key}` in `cell_name` and in names stands for a merged value. Keys that begin
//! with `label` serve only this purpose.

use std::collections::BTreeSet;

use serde::Deserialize;
use sextant_baselines::Policy;
use toml::{Table, Value};

use super::{Cell, Experiment, Kind, Variation, cell::CELL_KEYS};
use sextant_simulator::Error;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    #[serde(default)]
    source: String,
    kind: Kind,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default)]
    cell_name: Option<String>,
    #[serde(default)]
    defaults: Table,
    #[serde(default)]
    axis: Vec<Axis>,
    #[serde(default)]
    cell: Vec<Table>,
    #[serde(default)]
    quick: VariationFile,
    #[serde(default)]
    full: Option<VariationFile>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Axis {
    /// The key to set; absent when the values are tables.
    #[serde(default)]
    key: Option<String>,
    values: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct VariationFile {
    seeds: Option<u64>,
    /// Names of the cells; empty for the first cell.
    cells: Vec<String>,
    /// Overrides for every cell.
    set: Table,
}

fn one() -> u64 {
    1
}

pub(super) fn parse(text: &str, file: &str) -> Result<Experiment, Error> {
    let read: File = toml::from_str(text)
        .map_err(|error| Error::experiment(file, error.to_string().trim_end().to_owned()))?;
    let mut policies = Vec::new();
    for name in &read.policies {
        let policy: Policy = name
            .parse()
            .map_err(|unknown| Error::experiment(file, format!("{unknown}")))?;
        policies.push(policy);
    }
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    let tables = combine(&read, file)?;
    let cells = cells(&tables, &Table::new(), file)?;
    let quick = variation(&read.quick, &tables, &cells, ("quick", 1), file)?;
    let full = match &read.full {
        Some(full) => variation(full, &tables, &cells, ("full", read.seeds), file)?,
        None => Variation::default(),
    };
    let experiment = Experiment {
        name: read.name,
        title: read.title,
        source: read.source,
        kind: read.kind,
        policies,
        seeds: read.seeds.max(1),
        cells,
        quick,
        full,
    };
    let variations = [&experiment.quick, &experiment.full];
    let varied = variations
        .into_iter()
        .flat_map(|variation| &variation.cells);
    for cell in experiment.cells.iter().chain(varied) {
        super::check::check(experiment.kind, cell).map_err(|problem| {
            Error::experiment(file, format!("cell `{}`: {problem}", cell.name))
        })?;
    }
    Ok(experiment)
}

/// Every combination with its name.
fn combine(read: &File, file: &str) -> Result<Vec<Table>, Error> {
    let mut tables = Vec::new();
    let whole = [Table::new()];
    let cells = if read.cell.is_empty() {
        &whole[..]
    } else {
        &read.cell[..]
    };
    for cell in cells {
        let mut table = merged(&read.defaults, cell);
        let axes: Vec<Axis> = match table.remove("axis") {
            Some(own) => own
                .try_into()
                .map_err(|error| Error::experiment(file, format!("`axis` of a cell: {error}")))?,
            None => read.axis.clone(),
        };
        let pattern = match (table.remove("cell_name"), &read.cell_name) {
            (Some(Value::String(own)), _) => own,
            (_, Some(general)) => general.clone(),
            _ => "{name}".to_owned(),
        };
        for mut table in product(table, &axes, file)? {
            let name = fill(&pattern, &table, file)?;
            table.insert("name".to_owned(), Value::String(name));
            table.retain(|key, _| !key.starts_with("label"));
            tables.push(table);
        }
    }
    Ok(tables)
}

/// `table` combined with every combination of the axes' values.
fn product(table: Table, axes: &[Axis], file: &str) -> Result<Vec<Table>, Error> {
    let mut tables = vec![table];
    for axis in axes {
        let mut more = Vec::new();
        for table in &tables {
            for value in &axis.values {
                more.push(merged(table, &axis_value(axis, value, file)?));
            }
        }
        tables = more;
    }
    Ok(tables)
}

fn axis_value(axis: &Axis, value: &Value, file: &str) -> Result<Table, Error> {
    match (&axis.key, value) {
        (Some(key), value) => Ok(Table::from_iter([(key.clone(), value.clone())])),
        (None, Value::Table(table)) => Ok(table.clone()),
        (None, other) => {
            let problem = format!("`{other}` in an axis without a `key` is not a table");
            Err(Error::experiment(file, problem))
        }
    }
}

fn cells(tables: &[Table], over: &Table, file: &str) -> Result<Vec<Cell>, Error> {
    let cells: Result<Vec<Cell>, Error> = tables
        .iter()
        .map(|table| cell(merged(table, over), file))
        .collect();
    let cells = cells?;
    let mut names = BTreeSet::new();
    for cell in &cells {
        if !names.insert(&cell.name) {
            let problem = format!("two cells are called `{}`", cell.name);
            return Err(Error::experiment(file, problem));
        }
    }
    Ok(cells)
}

/// Splits a merged table into the cell's own keys and its groups.
fn cell(mut table: Table, file: &str) -> Result<Cell, Error> {
    let name = table.get("name").map(Value::to_string).unwrap_or_default();
    let groups = match table.remove("group") {
        None => vec![Table::new()],
        Some(Value::Array(groups)) => groups.into_iter().map(as_table).collect(),
        Some(other) => vec![as_table(other)],
    };
    let mut own = Table::new();
    for key in CELL_KEYS {
        if let Some(value) = table.remove(*key) {
            own.insert((*key).to_owned(), value);
        }
    }
    let groups = groups
        .iter()
        .map(|group| Value::Table(merged(&table, group)))
        .collect();
    own.insert("group".to_owned(), Value::Array(groups));
    Value::Table(own)
        .try_into()
        .map_err(|error: toml::de::Error| {
            let problem = format!("cell {name}: {}", error.to_string().trim_end());
            Error::experiment(file, problem)
        })
}

fn as_table(value: Value) -> Table {
    match value {
        Value::Table(table) => table,
        other => Table::from_iter([("group".to_owned(), other)]),
    }
}

/// The cells that a version names, or the first cell, with the version's overrides. `key` is the version's key in the
/// file. The version has `seeds` seeds if it names no number.
fn variation(
    read: &VariationFile,
    tables: &[Table],
    cells: &[Cell],
    (key, seeds): (&str, u64),
    file: &str,
) -> Result<Variation, Error> {
    let mut chosen = Vec::new();
    for name in &read.cells {
        let at = cells.iter().position(|cell| cell.name == *name);
        let at = at.ok_or_else(|| {
            Error::experiment(file, format!("`{key}` names `{name}`, which is not a cell"))
        })?;
        chosen.push(tables[at].clone());
    }
    if chosen.is_empty() {
        chosen.extend(tables.first().cloned());
    }
    Ok(Variation {
        cells: self::cells(&chosen, &read.set, file)?,
        seeds: read.seeds.unwrap_or(seeds).max(1),
    })
}

fn merged(below: &Table, over: &Table) -> Table {
    let mut table = below.clone();
    for (key, value) in over {
        let value = match (table.get(key), value) {
            (Some(Value::Table(below)), Value::Table(over)) => Value::Table(merged(below, over)),
            (_, value) => value.clone(),
        };
        table.insert(key.clone(), value);
    }
    table
}

/// Replaces each `{key}` with its value.
fn fill(pattern: &str, table: &Table, file: &str) -> Result<String, Error> {
    let mut name = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after.split_once('}').ok_or_else(|| {
            Error::experiment(file, format!("`{pattern}` has a `{{` without a `}}`"))
        })?;
        let value = table.get(key).ok_or_else(|| {
            Error::experiment(file, format!("`{pattern}` names `{key}`, which is not set"))
        })?;
        name.push_str(before);
        name.push_str(&plain(value));
        rest = after;
    }
    name.push_str(rest);
    Ok(name)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_lowercase(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join("+"),
        other => other.to_string().trim_end_matches(".0").to_owned(),
    }
}
