//! Presets: targets by name.

use std::collections::BTreeMap;

use sextant_types::{ApplicationId, Code, Metric, Targets};

use crate::{problem::Problem, targets::TargetsBody};

/// Most presets of an application.
const MOST: usize = 64;

/// Presets as clients send them.
pub(super) type Presets = BTreeMap<String, TargetsBody>;

/// Checks their names and targets.
pub(super) fn read(presets: Presets, metric: Metric) -> Result<BTreeMap<String, Targets>, Problem> {
    check(presets.len())?;
    let read = presets.into_iter().map(|(name, targets)| {
        let targets = one(&name, targets, metric)?;
        Ok((name, targets))
    });
    read.collect()
}

/// Refuses more presets than an application may have.
pub(super) fn check(count: usize) -> Result<(), Problem> {
    if count <= MOST {
        return Ok(());
    }
    let detail = format!("an application has at most {MOST} presets, and this makes {count}");
    Err(Problem::new(Code::InvalidRequest, detail).field("presets"))
}

/// Checks the name and the targets of one preset.
pub(super) fn one(name: &str, targets: TargetsBody, metric: Metric) -> Result<Targets, Problem> {
    let field = || format!("presets.{}", crate::codec::short(name));
    // Presets are named as applications are.
    if ApplicationId::new(name).is_err() {
        let detail = "a preset has a name of 1 to 128 of `a-z 0-9 - _ .`";
        return Err(Problem::new(Code::InvalidName, detail).field(field()));
    }
    let read = targets.suits(metric).and_then(|()| targets.read());
    read.map_err(|problem| problem.field(field()))
}

/// Checks the presets that remain when the metric changes.
pub(super) fn suit(
    kept: &BTreeMap<String, Targets>,
    was: Metric,
    metric: Metric,
) -> Result<(), Problem> {
    kept.iter().try_for_each(|(name, targets)| {
        let suits = TargetsBody::show(targets, was).suits(metric);
        suits.map_err(|problem| problem.field(format!("presets.{name}")))
    })
}

/// Presets in the terms of a metric.
pub(super) fn show(presets: &BTreeMap<String, Targets>, metric: Metric) -> Presets {
    let shown = presets
        .iter()
        .map(|(name, targets)| (name.clone(), TargetsBody::show(targets, metric)));
    shown.collect()
}
