//! What device time costs, and to whom the costs are attributed.

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, DeviceTypeName, VariantId};

use crate::Error;

/// The costs of a fleet's devices while one dispatcher led, part of a [`Demand`](crate::Demand).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Costs {
    /// When the dispatcher began to lead, ms since the Unix epoch.
    pub since_ms: u64,
    /// End of the counted time, ms since the Unix epoch.
    pub until_ms: u64,
    /// Price of idle time of devices that had nothing loaded, US dollars.
    pub unattributed_usd: f64,
    /// One row for each combination of application, variant and type of device, sorted by them; at
    /// most [`MOST_DEMAND_ROWS`](crate::MOST_DEMAND_ROWS).
    pub rows: Vec<CostRow>,
}

/// The costs of a variant on devices of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    /// The application that the variant answers for.
    pub application: ApplicationId,
    /// The variant; `None` adds up the variants beyond the largest number of rows.
    pub variant: Option<VariantId>,
    /// The type of the devices; `None` for devices without a stated type.
    pub device_type: Option<DeviceTypeName>,
    /// Price of the device time of its batches, US dollars.
    pub usd: f64,
    /// The part of `usd` for rows of offline jobs, US dollars.
    pub offline_usd: f64,
    /// Price of idle time of the devices on which the variant was loaded, in proportion to its
    /// share of the memory of all variants loaded there, US dollars.
    pub idle_usd: f64,
    /// Time of whole devices that its batches took, seconds: one of eight slots for 8 s is 1 s.
    pub device_seconds: f64,
    /// Queries that its batches have answered.
    pub queries: u64,
    /// The part of `queries` of offline jobs.
    pub offline_queries: u64,
}

// === impl Costs ===

impl Costs {
    /// Checks that all amounts are finite and not negative.
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
