//! Whether a variant on a type of device could meet targets. Selection and planning use the same entry and the same
//! rule. The rule itself is [`sextant_selection::meets_when_idle`].

use sextant_schedule::Nanos;
use sextant_selection::{Demand, Entry, Load, Readiness, meets_when_idle};
use sextant_types::{
    DeviceType, Profile, Quality, Variant,
    index::{KindIx, VariantIx},
};

use crate::Forecast;

/// The properties of a variant on a device that targets are compared with.
pub(crate) struct Terms<'a> {
    pub(crate) variant: &'a Variant,
    /// Its quality, as targets are compared with it.
    pub(crate) quality: Quality,
    /// 99th percentile of a lone query's run there, ms.
    pub(crate) run_ms: f64,
    /// The time that messages add to a query, ns.
    pub(crate) round_trip: Nanos,
    /// The time of a LOAD there, ms.
    pub(crate) load_ms: f64,
    /// Price of a thousand rows there, US dollars.
    pub(crate) cost_per_1k_usd: f64,
}

/// An idle fleet: nothing waits, and a query has one row.
struct Idle;

// === impl Terms ===

impl Terms<'_> {
    /// The entry that selection compares.
    pub(crate) fn entry(
        &self,
        (ordinal, kind): (VariantIx, KindIx),
        readiness: Readiness,
    ) -> Entry {
        let (quality_bound, agreement) = match self.quality {
            Quality::Accuracy(bound) => (bound, false),
            Quality::Agreement(share) => (share, true),
        };
        Entry {
            ordinal,
            kind,
            quality_bound,
            agreement,
            latency_ms: self.run_ms + self.round_trip as f64 / 1e6,
            load_ms: self.load_ms,
            cost_per_1k_usd: self.cost_per_1k_usd,
            max_rows: u32::from(self.variant.spec.max_batch.max(1)),
            dominated: self.variant.dominated_by.is_some(),
            readiness,
        }
    }

    /// The terms of a variant as it is expected to run on a type of device.
    pub(crate) fn expected<'a>(
        (variant, quality): (&'a Variant, Quality),
        profile: &Profile,
        facts: &DeviceType,
        round_trip: Nanos,
    ) -> Terms<'a> {
        let (threads, rps) = (variant.spec.threads, profile.saturation_rps);
        Terms {
            variant,
            quality,
            run_ms: profile.tail_latency_ms(1),
            round_trip,
            load_ms: profile.load_ms,
            cost_per_1k_usd: facts.cost(threads, rps).per_1k_usd,
        }
    }
}

/// Whether an entry could answer at least one query of a need.
pub(crate) fn could_answer(entry: &Entry, forecast: &Forecast) -> bool {
    let class = &forecast.need.class;
    let demand = Demand {
        latency_ms: forecast.latency_ms.map_or(f64::INFINITY, |(_, it)| it),
        least_quality: class.least_quality(),
        max_cost_per_1k_usd: f64::INFINITY,
        rows: 1,
        prefer: class.prefer,
    };
    meets_when_idle(entry, &demand, &Idle)
}

// === impl Idle ===

impl Load for Idle {
    fn wait_ms(&self, _: VariantIx, _: KindIx) -> f64 {
        0.0
    }

    fn extra_ms(&self, _: VariantIx, _: KindIx, _: u32) -> f64 {
        0.0
    }
}
