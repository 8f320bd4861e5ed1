//! The shipped experiments with fleets, which [`sextant_simulator::fleet`] plays.

use sextant_simulator::{Error, fleet::Experiment};

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

/// A shipped experiment; `None` where there is none of that name.
///
/// # Errors
/// Never: the files are part of the library.
pub fn named(name: &str) -> Result<Option<Experiment>, Error> {
    let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
    shipped
        .map(|(name, text)| Experiment::parse(text, name))
        .transpose()
}
