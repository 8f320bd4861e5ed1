//! The fewest machines that meet a latency target (SERF, section V-D).

use super::{Configuration, MissingTuple, Model, Profile, Rates, table::options, unit_load};

/// Machines, and how each runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// How many.
    pub machines: u32,
    /// The best of their configurations.
    pub configuration: Configuration,
    /// Predicted mean latency, s.
    pub mean_s: f64,
}

/// Why a target cannot be met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Infeasible {
    /// No number of machines is fast enough: even a request that is alone takes longer.
    Target {
        /// The target, s.
        target_s: f64,
        /// The fastest lone request, s.
        fastest_s: f64,
    },
    /// More machines would be needed than may be tried.
    Machines {
        /// The bound.
        most: u32,
    },
    /// The target or the load is not a number from 0 on.
    Number {
        /// What it is instead.
        value: f64,
    },
    /// The profile lacks what a prediction needs.
    Profile(MissingTuple),
    /// There is no profile.
    Empty,
}

/// The fewest machines, at most `most`, that serve `load_per_s` requests per second with a mean
/// latency of at most `target_s`, and their best configuration. The paper's search has no bound and
/// does not end where a target is below the fastest service time.
///
/// # Errors
/// When no number of machines up to `most` meets the target.
pub fn fewest_machines(
    profile: &Profile,
    load_per_s: f64,
    target_s: f64,
    most: u32,
) -> Result<Resources, Infeasible> {
    for value in [load_per_s, target_s] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Infeasible::Number { value });
        }
    }
    let options = options(profile, most).map_err(Infeasible::Profile)?;
    let lone = options.iter().map(|(_, rates)| 1.0 / rates.at(1));
    let fastest_s = lone.reduce(f64::min).ok_or(Infeasible::Empty)?;
    if fastest_s > target_s {
        return Err(Infeasible::Target {
            target_s,
            fastest_s,
        });
    }
    // Fewer than this complete less than arrives, in whatever configuration.
    let most_each = options
        .iter()
        .map(|(configuration, rates)| rates.capacity_per_s() / f64::from(configuration.inter));
    let stable = load_per_s / most_each.fold(0.0, f64::max);
    let least = (stable.ceil() as u32).max(1);
    let choice = |machines: u32| {
        let fitting = options
            .iter()
            .filter(move |(configuration, _)| u32::from(configuration.inter) <= machines);
        let predicted = fitting.map(move |(configuration, rates)| Resources {
            machines,
            configuration: *configuration,
            mean_s: mean_s(*configuration, rates, load_per_s, machines),
        });
        predicted.min_by(|a, b| a.mean_s.total_cmp(&b.mean_s))
    };
    (least..=most)
        .filter_map(choice)
        .find(|choice| choice.mean_s <= target_s)
        .ok_or(Infeasible::Machines { most })
}

fn mean_s(configuration: Configuration, rates: &Rates, load_per_s: f64, machines: u32) -> f64 {
    let load = unit_load(load_per_s, configuration.inter, machines);
    Model::Serf.mean_s(rates, load).unwrap_or(f64::INFINITY)
}

// === impl Infeasible ===

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target {
                target_s,
                fastest_s,
            } => write!(
                f,
                "no number of machines meets a mean of `{:.3}` ms: a lone request takes `{:.3}` ms",
                target_s * 1e3,
                fastest_s * 1e3
            ),
            Self::Machines { most } => write!(
                f,
                "`{most}` machines are too few; allow more, a higher target or less load"
            ),
            Self::Number { value } => {
                write!(
                    f,
                    "`{value}` is not a load or target; give a number from 0 on"
                )
            }
            Self::Profile(missing) => missing.fmt(f),
            Self::Empty => write!(f, "nothing was profiled"),
        }
    }
}

impl std::error::Error for Infeasible {}
