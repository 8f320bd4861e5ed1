//! The devices that the queries of a run would keep busy, by calculation, for comparison with what a policy had.
//!
//! A query needs `1 / rps` seconds of a device that answers `rps` a second in time and runs nothing else
//! (`sextant_scaling::rate_in_time`), of the type and with the variant for which that costs least. This would suffice
//! if devices were always full: there is no margin for chance in it, and parts of devices count.

use super::{Report, Setting};

/// Time between two looks at the rates, s.
const STEP_S: f64 = 1.0;

/// The need over the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Need {
    /// Price of the device time, US dollars.
    pub(super) cost_usd: f64,
    /// The share of the time in which all devices together cost less than the need, percent.
    pub(super) below_percent: f64,
}

/// The need; `None` for recorded queries, which have no rates, and if nothing answers a class.
pub(super) fn need(setting: &Setting, report: &Report) -> Option<Need> {
    if setting.recorded.is_some() {
        return None;
    }
    let classes = 0..setting.classes.len();
    let each: Option<Vec<f64>> = classes.map(|class| cheapest_usd(setting, class)).collect();
    let each = each?;
    let mut need = Need::default();
    let (mut below, mut steps) = (0.0, 0.0);
    while steps * STEP_S < setting.measured_s {
        let at_s = setting.warm_up_s + steps * STEP_S;
        let mut hour_usd = 0.0;
        for (class, usd) in setting.classes.iter().zip(&each) {
            hour_usd += class.rate.at(at_s) * usd;
        }
        let types = setting.types.iter().enumerate();
        let paid = types
            .map(|(kind, of)| f64::from(report.devices_at(kind, at_s)) * of.price_per_hour_usd);
        below += f64::from(u8::from(paid.sum::<f64>() < hour_usd));
        need.cost_usd += hour_usd * STEP_S / 3600.0;
        steps += 1.0;
    }
    need.below_percent = 100.0 * below / f64::max(steps, 1.0);
    (need.cost_usd > 0.0).then_some(need)
}

/// The least cost of one query a second of a class in full batches, US dollars an hour.
fn cheapest_usd(setting: &Setting, class: usize) -> Option<f64> {
    let of = &setting.classes[class];
    let good = setting.variants.numbered().filter(|(_, variant)| {
        let is_good = variant.is_good(of.min_accuracy);
        variant.application == of.application && is_good
    });
    let all = good.flat_map(|(at, _)| (0..setting.types.len()).map(move |kind| (at, kind)));
    let able = all.filter(|(_, kind)| setting.types[*kind].most > 0);
    let priced = able.filter_map(|(at, kind)| {
        let rate = setting.rate_in_time(at, kind, of.latency_ms)?;
        Some(setting.types[kind].price_per_hour_usd / rate)
    });
    priced.min_by(f64::total_cmp)
}
