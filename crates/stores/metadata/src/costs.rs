//! What device time costs, and whom it is counted to.

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, DeviceTypeName, VariantId};

use crate::Error;

/// What the devices of a fleet have cost while one dispatcher led, part of a
/// [`Demand`](crate::Demand).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Costs {
    /// When the dispatcher began to lead, ms since the Unix epoch.
    pub since_ms: u64,
    /// Until when it is counted, ms since the Unix epoch.
    pub until_ms: u64,
    /// Price of the time in which nothing ran on devices that had nothing loaded, US dollars.
    pub unattributed_usd: f64,
    /// Each combination of application, variant and type of device once, sorted by them; at most
    /// [`MOST_DEMAND_ROWS`](crate::MOST_DEMAND_ROWS).
    pub rows: Vec<CostRow>,
}

/// What a variant has cost on devices of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    /// The application that it answers for.
    pub application: ApplicationId,
    /// Which variant; `None` for those that there was no row for any more.
    pub variant: Option<VariantId>,
    /// The type of the devices; `None` for those that do not say it.
    pub device_type: Option<DeviceTypeName>,
    /// Price of the device time of its batches, US dollars.
    pub usd: f64,
    /// Of that, what rows of offline jobs have cost, US dollars.
    pub offline_usd: f64,
    /// Price of the time in which nothing ran on devices that it was loaded on, by its share of the
    /// memory of what was loaded there, US dollars.
    pub idle_usd: f64,
    /// Time of whole devices that its batches took, seconds: one of eight slots for 8 s is 1 s.
    pub device_seconds: f64,
    /// Queries that its batches have answered.
    pub queries: u64,
    /// Of these, those of offline jobs.
    pub offline_queries: u64,
}

// === impl Costs ===

impl Costs {
    /// Whether all amounts are some: neither negative nor endless.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let amounts = self.rows.iter().flat_map(CostRow::amounts);
        let mut amounts = amounts.chain([self.unattributed_usd]);
        match amounts.find(|amount| !(amount.is_finite() && *amount >= 0.0)) {
            Some(amount) => Err(Error::Amount { amount }),
            None => Ok(()),
        }
    }
}

impl CostRow {
    fn amounts(&self) -> [f64; 4] {
        [
            self.usd,
            self.offline_usd,
            self.idle_usd,
            self.device_seconds,
        ]
    }
}
