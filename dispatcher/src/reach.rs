//! What of the targets that nothing meets could be met: the number that a caller needs to ask for less.

use sextant_selection::{Demand, Entry, Index, expected_ms};

use crate::index::LiveLoad;

/// The best that is registered, of each thing that is asked for, for a query of these rows.
struct Best {
    quality: f64,
    latency_ms: f64,
    cost_per_1k_usd: f64,
}

/// Greatest rows of one query; 0 where nothing is registered.
pub(crate) fn most_rows(index: &Index) -> u32 {
    let rows = index.entries().iter().map(|entry| entry.max_rows);
    rows.max().unwrap_or(0)
}

/// Why nothing meets the targets, in one sentence with the numbers that could be met.
pub(crate) fn sentence(index: &Index, demand: &Demand, load: &LiveLoad<'_>) -> String {
    let fits = |entry: &&Entry| entry.max_rows >= demand.rows;
    let all = best(index.entries().iter().filter(fits), demand, load);
    let mut reasons = Vec::new();
    if all.quality < demand.min_quality {
        reasons.push(quality(all.quality));
    }
    if all.latency_ms > demand.latency_ms {
        reasons.push(format!("fastest here: {} ms", short(all.latency_ms)));
    }
    if all.cost_per_1k_usd > demand.max_cost_per_1k_usd {
        let usd = short(all.cost_per_1k_usd);
        reasons.push(format!("cheapest here: ${usd} for a thousand"));
    }
    if reasons.is_empty() {
        reasons = together(index, demand, load);
    }
    let reasons = reasons.join(", ");
    format!("no registered variant can meet the targets ({reasons}); the closest ones are listed")
}

/// Each target can be met, and no variant meets all: what one has to give for another.
fn together(index: &Index, demand: &Demand, load: &LiveLoad<'_>) -> Vec<String> {
    let fits = |entry: &&Entry| entry.max_rows >= demand.rows;
    let is_good = |entry: &&Entry| entry.quality_bound >= demand.min_quality;
    let is_cheap = |entry: &&Entry| entry.cost_per_1k_usd <= demand.max_cost_per_1k_usd;
    let is_fast = |entry: &&Entry| expected_ms(entry, demand, load) <= demand.latency_ms;
    let entries = || index.entries().iter().filter(fits);
    let mut reasons = Vec::new();
    if demand.latency_ms.is_finite() {
        let suited = best(entries().filter(is_good).filter(is_cheap), demand, load);
        if suited.latency_ms.is_finite() {
            let ms = short(suited.latency_ms);
            reasons.push(format!("fastest that meets the others: {ms} ms"));
        }
    }
    if demand.min_quality.is_finite() {
        let suited = best(entries().filter(is_fast).filter(is_cheap), demand, load);
        if suited.quality.is_finite() {
            let among = quality(suited.quality);
            reasons.push(format!("{among} among those that meet the others"));
        }
    }
    if reasons.is_empty() {
        reasons.push("each can be met, and not all by one variant".to_owned());
    }
    reasons
}

fn best<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> Best {
    let none = Best {
        quality: f64::NEG_INFINITY,
        latency_ms: f64::INFINITY,
        cost_per_1k_usd: f64::INFINITY,
    };
    entries.fold(none, |best, entry| Best {
        quality: best.quality.max(entry.quality_bound),
        latency_ms: best.latency_ms.min(expected_ms(entry, demand, load)),
        cost_per_1k_usd: best.cost_per_1k_usd.min(entry.cost_per_1k_usd),
    })
}

/// Errors are negative on the quality scale.
fn quality(bound: f64) -> String {
    match bound.is_sign_negative() {
        true => format!("least error here: {}", short(-bound)),
        false => format!("best accuracy here: {}", short(bound)),
    }
}

/// Four digits that count.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 12.0);
    let text = format!("{value:.*}", digits as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_that_count() {
        for (value, wanted) in [
            (0.986_12, "0.9861"),
            (0.000_123_456, "0.0001235"),
            (12.0, "12"),
            (1234.5, "1234"),
            (0.0, "0"),
        ] {
            assert_eq!(short(value), wanted);
        }
    }

    #[test]
    fn errors_are_told_as_errors() {
        assert_eq!(quality(-0.25), "least error here: 0.25");
        assert_eq!(quality(0.5), "best accuracy here: 0.5");
    }
}
