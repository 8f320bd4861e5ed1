//! The setting of limited memory.

use sextant_placement as placement;
use sextant_profile::Estimation;
use sextant_schedule::Nanos;
use sextant_types::index::VariantIx;

use crate::Setting;
use sextant_simulator::{Error, Jitter};

/// The memory, and the policies that fill it. Everything else is in a [`Setting`].
#[derive(Debug, Clone)]
pub struct Paging {
    /// Pages of each device.
    pub pages: u32,
    /// For each model: what it takes to have it loaded.
    pub residences: Vec<Residence>,
    /// Which models are loaded where.
    pub placement: placement::Options,
    /// How run times and load times are predicted, starting from the profile.
    pub estimation: Estimation,
    /// Scatter of run times, instead of [`Setting::jitter`].
    pub infer_jitter: Jitter,
    /// Scatter of load times.
    pub load_jitter: Jitter,
    /// How much earlier the controller sets deadlines, ns. One half is for actions that start late: their windows are
    /// kept open by it. The other half is for actions that run longer than predicted.
    pub precision: Nanos,
    /// For each model: its class in reports, from 0.
    pub classes: Vec<u32>,
    /// Length of the intervals of figures, ns.
    pub interval: Nanos,
    /// Whether to record every action that devices carried out.
    pub log: bool,
}

/// What it takes to have a model loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence {
    /// Pages.
    pub pages: u32,
    /// Load time by its profile, ns.
    pub load: Nanos,
}

// === impl Paging ===

impl Paging {
    /// What it takes to have a model loaded.
    pub(super) fn residence(&self, model: VariantIx) -> Residence {
        self.residences[model.get() as usize]
    }

    /// Checks it against the models and devices of `setting`.
    pub(super) fn check(&self, setting: &Setting) -> Result<(), Error> {
        let models = setting.models.len();
        if self.residences.len() != models || self.classes.len() != models {
            let problem = format!("memory is not described for each of the `{models}` models");
            return Err(Error::Setting(problem));
        }
        let too_large = self
            .residences
            .iter()
            .zip(&setting.models)
            .find(|(residence, _)| residence.pages > self.pages);
        if let Some((residence, model)) = too_large {
            let problem = format!(
                "model `{}` takes `{}` pages, a device has `{}`",
                model.name, residence.pages, self.pages
            );
            return Err(Error::Setting(problem));
        }
        if !setting.failures.is_empty() {
            let problem = "devices with limited memory do not fail in the simulator";
            return Err(Error::Setting(problem.to_owned()));
        }
        Ok(())
    }
}
