//! What applications may use of the fleet, as it is published with their variants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sextant_metadata::{Cutback, View};
use sextant_scaling::{
    Need,
    tenants::{Cut, Limit, Tenant, Tenants},
};
use sextant_types::{ApplicationId, Resources, index::ApplicationIx};

use crate::Forecast;

/// The applications that have settings of their own.
#[derive(Debug, Default)]
pub struct Set(BTreeMap<ApplicationId, Resources>);

// === impl Set ===

impl Set {
    /// The settings of the published variants. While a change is being published, the first variant of an application
    /// decides.
    pub fn of(view: &View) -> Self {
        let mut set = BTreeMap::new();
        for variant in view.variants.values() {
            let resources = set.entry(variant.application.clone());
            resources.or_insert(variant.resources);
        }
        set.retain(|_, resources: &mut Resources| !resources.is_default());
        Self(set)
    }

    /// Whether an application may not use as much as it asks for.
    pub fn is_bounded(&self, application: &ApplicationId) -> bool {
        let set = self.0.get(application);
        set.is_some_and(|set| set.budget_per_hour_usd.is_some() || set.most_workers.is_some())
    }

    /// Adds a need without targets to each application for which devices are kept. It counts if nobody has asked the
    /// application, or only for what no variant can meet.
    pub fn add_kept(&self, outlooks: &mut Vec<Forecast>) {
        let kept = self.0.iter().filter(|(_, of)| of.least_workers > 0);
        outlooks.extend(kept.map(|(id, _)| Forecast::nobody(id)));
    }

    /// The tenants for the planner; empty if nobody has set anything.
    pub fn tenants(&self, outlooks: &[Forecast]) -> Tenants {
        if self.0.is_empty() {
            return Tenants::default();
        }
        let mut numbers: BTreeMap<&ApplicationId, ApplicationIx> = BTreeMap::new();
        let mut tenants = Tenants::default();
        for forecast in outlooks {
            let application = &forecast.need.application;
            let next = ApplicationIx::new(numbers.len() as u32);
            let number = *numbers.entry(application).or_insert(next);
            if number == next {
                tenants.all.push(self.tenant(application));
            }
            tenants.of_need.push(number);
        }
        tenants
    }

    /// Which applications are held back, by what and why, sorted.
    pub fn held_back(&self, outlooks: &[Forecast], cuts: &[Cut]) -> Vec<Cutback> {
        let each = cuts.iter().filter_map(|cut| {
            let forecast = outlooks.get(cut.need as usize)?;
            Some((forecast.need.application.clone(), cut.limit))
        });
        let each: BTreeSet<(ApplicationId, Limit)> = each.collect();
        let held_back = each.into_iter().map(|(application, limit)| Cutback {
            reason: self.reason(&application, limit),
            limit: match limit {
                Limit::Budget => sextant_metadata::Limit::Budget,
                Limit::Most => sextant_metadata::Limit::MostWorkers,
                Limit::Others => sextant_metadata::Limit::Others,
            },
            application,
        });
        held_back.collect()
    }

    /// The applications for which more is planned than is asked, and the number of workers that each keeps.
    pub fn kept(&self, outlooks: &[Forecast], planned: &[Need]) -> BTreeSet<(ApplicationId, u32)> {
        let each = outlooks.iter().zip(planned);
        let raised = each.filter(|(forecast, need)| need.rps > forecast.of.rps);
        let kept = raised.filter_map(|(forecast, _)| {
            let application = &forecast.need.application;
            Some((application.clone(), self.0.get(application)?.least_workers))
        });
        kept.collect()
    }

    fn reason(&self, application: &ApplicationId, limit: Limit) -> Arc<str> {
        let set = self.0.get(application).copied().unwrap_or_default();
        match limit {
            Limit::Budget => format!(
                "demand for `{application}` exceeds what its budget of {} US dollars an hour pays for",
                set.budget_per_hour_usd.unwrap_or(0.0)
            ),
            Limit::Most => format!(
                "demand for `{application}` exceeds what its limit of {} workers can serve",
                set.most_workers.unwrap_or(0)
            ),
            Limit::Others => format!(
                "capacity is short: other applications precede `{application}` by priority or hold \
                 their share by weight"
            ),
        }
        .into()
    }

    fn tenant(&self, application: &ApplicationId) -> Tenant {
        let usual = Tenant::default();
        let Some(set) = self.0.get(application) else {
            return usual;
        };
        Tenant {
            budget_per_hour_usd: set.budget_per_hour_usd,
            least: set.least_workers,
            most: set.most_workers,
            priority: set.priority.unwrap_or(usual.priority),
            weight: set.weight.unwrap_or(usual.weight),
        }
    }
}
