//! The load, as selection asks about it.

use sextant_schedule::{NEVER, Nanos};
use sextant_selection::Load;

use sextant_picture::InputSize;

use crate::{driver::Driver, snapshot::Snapshot};
use sextant_types::index::{KindIx, VariantIx};

/// The state that selection reads while it chooses.
pub(crate) struct LiveLoad<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) driver: &'a Driver,
    /// The size of the query.
    pub(crate) extent: InputSize,
    pub(crate) now: Nanos,
}

impl Load for LiveLoad<'_> {
    /// The wait where the variant would start first, plus the time by which its run now exceeds the
    /// profile.
    fn wait_ms(&self, ordinal: VariantIx, kind: KindIx) -> f64 {
        let of = (kind, self.extent.size());
        match self.driver.gauges().wait(ordinal, of, self.now) {
            NEVER => f64::INFINITY,
            wait => wait as f64 / 1e6,
        }
    }

    fn extra_ms(&self, ordinal: VariantIx, kind: KindIx, rows: u32) -> f64 {
        if rows <= 1 {
            return 0.0;
        }
        let Some(known) = self.snapshot.known(ordinal) else {
            return f64::INFINITY;
        };
        let rows = rows.min(known.max_rows());
        let run = |rows| known.run_on(kind, rows, self.extent);
        run(rows).saturating_sub(run(1)) as f64 / 1e6
    }
}
