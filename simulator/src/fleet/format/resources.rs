//! What an application may use of the fleet, under the names of the API.

use serde::Deserialize;
use sextant_scaling::tenants::Tenant;

#[derive(Debug, Clone, Copy, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResourcesFile {
    budget_per_hour_usd: Option<f64>,
    least_workers: u32,
    most_workers: Option<u32>,
    priority: Option<u8>,
    weight: Option<f64>,
}

// === impl ResourcesFile ===

impl ResourcesFile {
    pub(super) fn check(&self) -> Result<(), String> {
        let refuse = |key: &str, rule: &str| Err(format!("`resources.{key}` must be {rule}"));
        let budget = self.budget_per_hour_usd.unwrap_or(0.0);
        if !(0.0..=1e9).contains(&budget) {
            return refuse("budget_per_hour_usd", "from 0 to 1e9");
        }
        let weight = self.weight.unwrap_or(1.0);
        if !(0.001..=1000.0).contains(&weight) {
            return refuse("weight", "from 0.001 to 1000");
        }
        if self
            .most_workers
            .is_some_and(|most| most < self.least_workers)
        {
            return refuse("most_workers", "at least `least_workers`");
        }
        Ok(())
    }

    pub(super) fn read(&self) -> Tenant {
        let usual = Tenant::default();
        Tenant {
            budget_per_hour_usd: self.budget_per_hour_usd,
            least: self.least_workers,
            most: self.most_workers,
            priority: self.priority.unwrap_or(usual.priority),
            weight: self.weight.unwrap_or(usual.weight),
        }
    }
}
