//! `sextant-lab list`: the shipped experiments.

use serde_json::json;
use sextant_lab::{experiment, fleets, partition, replicas};
use sextant_simulator::report::Sheet;

use super::{Error, output::Output};

/// One of them.
struct ShippedExperiment {
    name: String,
    cells: usize,
    title: String,
    source: String,
}

/// Prints a line for each.
pub fn print(output: Output) -> Result<(), Error> {
    let mut sheet = Sheet::new(&["experiment", "cells", "what it shows"]);
    for of in shipped()? {
        if output.json {
            let (name, cells, title, source) = (of.name, of.cells, of.title, of.source);
            let line =
                json!({"experiment": name, "cells": cells, "title": title, "source": source});
            output.text(&line.to_string())?;
            continue;
        }
        sheet.row(vec![of.name, of.cells.to_string(), of.title]);
    }
    match output.json {
        true => Ok(()),
        false => output.text(&sheet.render()),
    }
}

fn shipped() -> Result<Vec<ShippedExperiment>, Error> {
    let mut shipped = Vec::new();
    let mut add = |name, cells, title, source| {
        shipped.push(ShippedExperiment {
            name,
            cells,
            title,
            source,
        });
    };
    for name in experiment::names() {
        let of = experiment::Experiment::named(name)?;
        add(of.name, of.cells.len(), of.title, of.source);
    }
    for name in partition::names() {
        if let Some(of) = partition::Experiment::named(name)? {
            add(of.name, of.cells.len(), of.title, of.source);
        }
    }
    for name in fleets::names() {
        if let Some(of) = fleets::named(name)? {
            add(of.name, of.cells.len(), of.title, of.source);
        }
    }
    for name in replicas::names() {
        if let Some(of) = replicas::Experiment::named(&name)? {
            add(of.name, 1, of.title, of.source);
        }
    }
    Ok(shipped)
}
