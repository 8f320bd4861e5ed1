//! Builds devices with limited memory from a cell.

use serde::Deserialize;
use sextant_baselines::Policy;
use sextant_placement as placement;
use sextant_profile::Estimation;
use sextant_schedule::Nanos;

use super::{Cell, build::PreparedCell};
use crate::paged::{Paging, Residence};
use sextant_simulator::{Error, Jitter, profiles::nanos};

/// The memory of devices, and how it is filled.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Pages of each device.
    pub pages: u32,
    /// Size of a page, KiB.
    #[serde(default = "clockwork_page")]
    pub page_kib: u32,
    /// Which models are loaded where: `sextant`, `clockwork` or `lru`. If empty, the scheduling policy decides, with
    /// `lru` for policies that have no placement of their own.
    #[serde(default)]
    pub placement: String,
    /// How run times are estimated: `sextant`, `clockwork` or `profile`. If empty, the scheduling policy decides, with
    /// `profile` as the default.
    #[serde(default)]
    pub estimation: String,
    /// How run times and load times vary.
    #[serde(default)]
    pub scatter: Scatter,
    /// How much earlier deadlines are set, ms. Windows are kept open by half of it.
    #[serde(default)]
    pub precision_ms: f64,
    /// Length of the intervals of figures, s.
    #[serde(default = "minute")]
    pub interval_s: f64,
    /// Number of intervals in a line of the report; 0 for no lines.
    #[serde(default)]
    pub report_every: u32,
    /// Rates and latencies of the groups are measured from this time after the warm-up on, s.
    #[serde(default)]
    pub steady_from_s: f64,
}

/// How times vary around the profile if memory is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scatter {
    /// By the cell's `jitter_share`.
    #[default]
    Share,
    /// As Clockwork measured it (figure 10 there).
    Clockwork,
}

/// The memory of a cell's devices under a policy, and the memory that each model takes.
pub(super) fn paging(
    cell: &Cell,
    spec: &MemorySpec,
    prepared: &PreparedCell,
    policy: Policy,
) -> Result<Paging, Error> {
    let (mut residences, mut classes) = (Vec::new(), Vec::new());
    for (class, part) in (0..).zip(&prepared.groups) {
        for profile in &part.profiles {
            let missing = |what| {
                let model = &profile.model;
                Error::Setting(format!("profile of `{model}` has no `{what}`"))
            };
            let weights_mb = profile.weights_mb.ok_or_else(|| missing("weights_mb"))?;
            let load_ms = profile.load_ms.ok_or_else(|| missing("load_ms"))?;
            let residence = Residence {
                pages: pages(weights_mb, spec.page_kib),
                load: nanos(load_ms),
            };
            for _ in 0..part.group.copies {
                residences.push(residence);
                classes.push(class);
            }
        }
    }
    Ok(Paging {
        pages: spec.pages,
        residences,
        placement: placement::Options::of(placement_of(policy, spec)?),
        estimation: estimation_of(policy, spec)?,
        infer_jitter: match spec.scatter {
            Scatter::Clockwork => Jitter::CLOCKWORK_INFER,
            Scatter::Share => share(cell),
        },
        load_jitter: match spec.scatter {
            Scatter::Clockwork => Jitter::CLOCKWORK_LOAD,
            Scatter::Share => share(cell),
        },
        precision: nanos(spec.precision_ms),
        classes,
        interval: (spec.interval_s * 1e9).round() as Nanos,
        log: false,
    })
}

/// What is wrong with a description of memory.
pub(super) fn check(spec: &MemorySpec) -> Result<(), String> {
    let numbers = [
        ("memory.pages", f64::from(spec.pages)),
        ("memory.page_kib", f64::from(spec.page_kib)),
        ("memory.interval_s", spec.interval_s),
    ];
    for (key, value) in numbers {
        if !value.is_finite() || value <= 0.0 {
            return Err(format!("`{key}` is `{value}`: it must be more than zero"));
        }
    }
    for (key, value) in [
        ("memory.precision_ms", spec.precision_ms),
        ("memory.steady_from_s", spec.steady_from_s),
    ] {
        if !value.is_finite() || value < 0.0 {
            return Err(format!(
                "`{key}` is `{value}`: it must be finite and not negative"
            ));
        }
    }
    let said = |error: Error| error.to_string();
    placement_of(Policy::Eager, spec).map_err(said)?;
    estimation_of(Policy::Eager, spec).map_err(said)?;
    Ok(())
}

fn share(cell: &Cell) -> Jitter {
    match cell.jitter_share {
        0.0 => Jitter::None,
        spread => Jitter::Uniform { spread },
    }
}

/// Number of whole pages that weights of this size take.
fn pages(weights_mb: f64, page_kib: u32) -> u32 {
    (weights_mb * 1e6 / (f64::from(page_kib) * 1024.0))
        .ceil()
        .max(1.0) as u32
}

fn placement_of(policy: Policy, spec: &MemorySpec) -> Result<placement::Policy, Error> {
    if !spec.placement.is_empty() {
        let named = spec.placement.parse::<placement::Policy>();
        return named.map_err(|unknown| Error::Setting(unknown.to_string()));
    }
    Ok(match policy {
        Policy::Sextant => placement::Policy::Sextant,
        Policy::Clockwork => placement::Policy::Clockwork,
        _ => placement::Policy::Lru,
    })
}

fn estimation_of(policy: Policy, spec: &MemorySpec) -> Result<Estimation, Error> {
    if !spec.estimation.is_empty() {
        let named = spec.estimation.parse::<Estimation>();
        return named.map_err(|unknown| Error::Setting(unknown.to_string()));
    }
    Ok(match policy {
        Policy::Sextant => Estimation::Sextant,
        Policy::Clockwork => Estimation::Clockwork,
        _ => Estimation::Profile,
    })
}

fn clockwork_page() -> u32 {
    16 * 1024
}

fn minute() -> f64 {
    60.0
}
