//! The expected performance of variants on types of devices where they were not measured.
//!
//! An estimate is the profile from the registration with its times multiplied by a factor. The factor comes from
//! measurements there of other variants, of the same engine or else of any, or from the configuration. The estimate may
//! be wrong, so it counts at its worse end, in latency and in price: a measured variant loses against an estimated one
//! only if the latter wins by more than [`UNCERTAINTY`].

use std::collections::BTreeMap;

use crate::{DeviceTypeName, EngineName, ExpectedProfile, Profile, Variant, VariantId};

/// The factor by which an estimate may be wrong.
pub const UNCERTAINTY: f64 = 1.5;

/// The factors by which variants take longer on other types of devices than where they were registered.
#[derive(Debug, Clone, PartialEq)]
pub struct Slowdowns {
    /// The measured factors, by variant and type.
    variants: BTreeMap<(VariantId, DeviceTypeName), f64>,
    /// The median factor, by engine and type.
    engines: BTreeMap<(EngineName, DeviceTypeName), f64>,
    /// The median factor, by type.
    types: BTreeMap<DeviceTypeName, f64>,
    /// The factor if nothing was measured.
    usual: f64,
}

// === impl Slowdowns ===

impl Slowdowns {
    /// Computed from the profiles of `variants`. `usual` is used for types on which nothing was measured.
    pub fn of<'a>(variants: impl IntoIterator<Item = &'a Variant>, usual: f64) -> Self {
        let mut of_variants = BTreeMap::new();
        let (mut engines, mut types) = (BTreeMap::new(), BTreeMap::new());
        for variant in variants {
            for (on, profile) in &variant.profiles {
                let Some(factor) = factor(&variant.profile, profile) else {
                    continue;
                };
                of_variants.insert((variant.id.clone(), on.clone()), factor);
                let engine = (variant.spec.engine.clone(), on.clone());
                engines.entry(engine).or_insert_with(Vec::new).push(factor);
                types
                    .entry(on.clone())
                    .or_insert_with(Vec::new)
                    .push(factor);
            }
        }
        Self {
            variants: of_variants,
            engines: middles(engines),
            types: middles(types),
            usual,
        }
    }

    /// The expected profile of a variant on a type of device. A variant that another one dominates is expected to be
    /// slowed down there at least as much as that one.
    pub fn expected<'a>(&self, variant: &'a Variant, on: &DeviceTypeName) -> ExpectedProfile<'a> {
        let engine = self.engines.get(&(variant.spec.engine.clone(), on.clone()));
        let of_type = || self.types.get(on);
        let factor = engine.or_else(of_type).copied().unwrap_or(self.usual);
        let by = variant.dominated_by.clone();
        let of_best = by.and_then(|by| self.variants.get(&(by, on.clone())));
        let factor = of_best.map_or(factor, |of| of.max(factor));
        variant.expected(on, factor * UNCERTAINTY)
    }
}

/// The median of each list, the greater one of two.
fn middles<K: Ord>(found: BTreeMap<K, Vec<f64>>) -> BTreeMap<K, f64> {
    let middles = found.into_iter().filter_map(|(key, mut all)| {
        all.sort_by(f64::total_cmp);
        Some((key, *all.get(all.len() / 2)?))
    });
    middles.collect()
}

/// The factor by which the times of `measured` exceed those of `registered`, for a lone query or at saturation.
fn factor(registered: &Profile, measured: &Profile) -> Option<f64> {
    let latency = measured.latency_ms(1) / registered.latency_ms(1);
    let throughput = registered.saturation_rps / measured.saturation_rps;
    let usable = [latency, throughput]
        .into_iter()
        .filter(|it| it.is_finite() && *it > 0.0);
    usable.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchLatency, Sizes};

    fn profile(ms: f64, saturation_rps: f64) -> Profile {
        Profile {
            load_ms: 1.0,
            first_load_ms: None,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: ms,
                p99_ms: ms,
                mean_ms: ms,
                samples: 1,
            }],
            alpha_ms: 0.0,
            beta_ms: ms,
            residual_ms: 0.0,
            saturation_rps,
            peak_memory_bytes: 0,
            weights_bytes: 0,
            sizes: Sizes::default(),
            concurrent: Vec::new(),
        }
    }

    #[test]
    fn the_middle_is_no_outlier() {
        let found = BTreeMap::from([("a", vec![30.0, 2.0, 3.0]), ("b", vec![1.0, 2.0])]);
        assert_eq!(middles(found), BTreeMap::from([("a", 3.0), ("b", 2.0)]));
    }

    #[test]
    fn times_there_are_those_here_by_the_worse_of_latency_and_throughput() {
        let here = profile(2.0, 1000.0);
        assert_eq!(factor(&here, &profile(20.0, 500.0)), Some(10.0));
        assert_eq!(factor(&here, &profile(4.0, 10.0)), Some(100.0));
        assert_eq!(factor(&here, &profile(1.0, 4000.0)), Some(0.5));
        assert_eq!(factor(&profile(0.0, 0.0), &profile(0.0, 0.0)), None);
    }
}
