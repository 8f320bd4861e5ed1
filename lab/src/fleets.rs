//! The shipped experiments with fleets, which [`sextant_simulator::fleet`] runs.

use sextant_baselines as schedule;
use sextant_scaling as scaling;
use sextant_simulator::{
    Error, Record,
    fleet::{Experiment, Plan, Policy, play_by},
};

/// The shipped experiments.
const SHIPPED: [(&str, &str); 6] = [
    (
        "infaas-fig5",
        include_str!("../experiments/infaas-fig5.toml"),
    ),
    (
        "infaas-fig6",
        include_str!("../experiments/infaas-fig6.toml"),
    ),
    (
        "infaas-fig7",
        include_str!("../experiments/infaas-fig7.toml"),
    ),
    (
        "accuracy-scaling",
        include_str!("../experiments/accuracy-scaling.toml"),
    ),
    ("step-load", include_str!("../experiments/step-load.toml")),
    (
        "symphony-fig14",
        include_str!("../experiments/symphony-fig14.toml"),
    ),
];

/// Names of the shipped experiments.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// A shipped experiment; `None` if there is none of that name.
///
/// # Errors
/// Never: the files are part of the library.
pub fn named(name: &str) -> Result<Option<Experiment>, Error> {
    let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
    shipped
        .map(|(name, text)| Experiment::parse(text, name))
        .transpose()
}

/// Runs the part that `plan` selects, as [`sextant_simulator::fleet::play`] does.
///
/// # Errors
/// When the plan names an unknown cell, or a setting is invalid.
pub fn play(
    experiment: &Experiment,
    plan: &Plan,
    on: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Record>, Error> {
    play_by(experiment, plan, &schedulers, on)
}

/// Options of the scheduler. Symphony's advice reads idle time, which its scheduler leaves.
pub fn schedulers(policy: Policy) -> schedule::Options {
    schedule::Options::of(match policy {
        Policy::Scaler(scaling::Policy::Symphony) => schedule::Policy::Symphony,
        _ => schedule::Policy::default(),
    })
}
