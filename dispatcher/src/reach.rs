//! Tells a refused caller the best value that is available for each target.

use sextant_selection::{Demand, Entry, Index, expected_ms};
use sextant_types::{Accuracy, AccuracyKind, LeastQuality, Quality};

use crate::live_load::LiveLoad;

/// The best registered value of each target, for a query of this many rows.
struct BestOffer {
    latency_ms: f64,
    cost_per_1k_usd: f64,
}

/// The most rows of one query; 0 if nothing is registered.
pub(crate) fn most_rows(index: &Index) -> u32 {
    let rows = index.entries().iter().map(|entry| entry.max_rows);
    rows.max().unwrap_or(0)
}

/// Says in one sentence why nothing meets the targets, with the figures that could be met.
pub(crate) fn sentence(index: &Index, demand: &Demand, load: &LiveLoad<'_>) -> String {
    let fits = |entry: &&Entry| entry.max_rows >= demand.rows;
    let all = best(index.entries().iter().filter(fits), demand, load);
    let mut reasons = Vec::new();
    let is_good = |entry: &Entry| demand.least_quality.is_met_by(entry.quality());
    if !index.entries().iter().filter(fits).any(is_good) {
        reasons.extend(best_quality(
            index.entries().iter().filter(fits),
            demand,
            load,
        ));
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

/// The reasons if each target can be met and no variant meets all: the best latency and quality among the variants that
/// meet the other targets.
fn together(index: &Index, demand: &Demand, load: &LiveLoad<'_>) -> Vec<String> {
    let fits = |entry: &&Entry| entry.max_rows >= demand.rows;
    let is_good = |entry: &&Entry| demand.least_quality.is_met_by(entry.quality());
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
    if demand.least_quality != LeastQuality::NONE {
        let suited = entries().filter(is_fast).filter(is_cheap);
        let among = best_quality(suited, demand, load);
        reasons.extend(among.map(|it| format!("{it}, among those that meet the others")));
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
) -> BestOffer {
    let none = BestOffer {
        latency_ms: f64::INFINITY,
        cost_per_1k_usd: f64::INFINITY,
    };
    entries.fold(none, |best, entry| BestOffer {
        latency_ms: best.latency_ms.min(expected_ms(entry, demand, load)),
        cost_per_1k_usd: best.cost_per_1k_usd.min(entry.cost_per_1k_usd),
    })
}

/// The figures of the entry that comes nearest to the demanded quality; `None` if there are no entries.
fn best_quality<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> Option<String> {
    let least = &demand.least_quality;
    let known = entries.filter_map(|entry| Some((entry, load.snapshot.known(entry.ordinal)?)));
    let each = known.map(|(entry, known)| (entry.quality(), &known.variant.accuracy));
    nearest(each, least)
}

/// The figures of the nearest to the demanded quality. Accuracy measured against labels goes before agreement.
pub(crate) fn nearest<'a>(
    measured: impl Iterator<Item = (Quality, &'a Accuracy)>,
    least: &LeastQuality,
) -> Option<String> {
    let kind = |of: &Accuracy| !of.kind.is_accuracy();
    let (quality, accuracy) = measured.min_by(|(a, of_a), (b, of_b)| {
        let by_bound = || of_b.quality_bound().total_cmp(&of_a.quality_bound());
        let by_kind = kind(of_a).cmp(&kind(of_b));
        by_kind
            .then_with(|| least.miss(*a).total_cmp(&least.miss(*b)))
            .then_with(by_bound)
    })?;
    Some(self::measured(accuracy, quality, least))
}

/// The measured value beside the value that is compared, and the number of records that would make it sufficient.
pub(crate) fn measured(accuracy: &Accuracy, quality: Quality, least: &LeastQuality) -> String {
    match (quality, accuracy.kind) {
        (Quality::Accuracy(_), _) => accuracy_in_words(accuracy, least.accuracy),
        (Quality::Agreement(share), _) if least.agreement < f64::INFINITY => format!(
            "best agreement with the uploaded file here: {} of what that file has itself",
            short(share)
        ),
        (_, AccuracyKind::Unknown) => "no accuracy is known here: an earlier version registered the model, and \
             nothing tells whether its validation set had labels; register it again"
            .to_owned(),
        _ => "no accuracy is known here: the validation set had no labels, and agreement with the uploaded file \
             meets `min_relative_accuracy` alone"
            .to_owned(),
    }
}

fn accuracy_in_words(accuracy: &Accuracy, least: f64) -> String {
    let (value, bound) = (accuracy.value, accuracy.quality_bound());
    let (what, bound) = match accuracy.metric.higher_is_better() {
        true => ("best accuracy here", bound),
        false => ("least error here", 0.0 - bound),
    };
    let (value, bound, records) = (short(value), short(bound), accuracy.records);
    let sure = format!("{what}: {value} measured, sure of {bound} with {records} records");
    match accuracy.records_for(least) {
        Some(more) => format!("{sure}; about {more} records of the same would do"),
        None => sure,
    }
}

/// The value with four significant digits.
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
    use sextant_types::Metric;

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

    fn figure(metric: Metric, value: f64, bound: f64) -> Accuracy {
        Accuracy {
            kind: AccuracyKind::Accuracy,
            metric,
            value,
            lower: bound.min(value),
            upper: bound.max(value),
            records: 89,
            evaluation_batch: 32,
        }
    }

    #[test]
    fn what_was_measured_stands_beside_what_it_is_compared_by() {
        let told =
            |of: &Accuracy, least| measured(of, Quality::Accuracy(of.quality_bound()), &least);
        let of = figure(Metric::Top1, 0.955, 0.8901);
        let least = LeastQuality::new(Some(0.93), None);
        let wanted = "best accuracy here: 0.955 measured, sure of 0.8901 with 89 records; about 410 records of the \
                      same would do";
        assert_eq!(told(&of, least), wanted);
        // The value itself is too low, so no number of records makes it sufficient.
        let more = LeastQuality::new(Some(0.96), None);
        assert!(!told(&of, more).contains("would do"));
        let error = figure(Metric::MeanAbsoluteError, 0.2, 0.25);
        let told = told(&error, LeastQuality::new(Some(-0.21), None));
        assert!(
            told.starts_with("least error here: 0.2 measured, sure of 0.25"),
            "{told}"
        );
        assert!(told.contains("2300 records"), "{told}");
    }

    #[test]
    fn agreement_is_told_apart_from_accuracy() {
        let agrees = Accuracy {
            kind: AccuracyKind::Agreement,
            ..figure(Metric::Top1, 1.0, 0.959)
        };
        let labelled = figure(Metric::Top1, 0.9, 0.85);
        let least = LeastQuality::new(Some(0.95), None);
        let both = [
            (Quality::Agreement(1.0), &agrees),
            (Quality::Accuracy(0.85), &labelled),
        ];
        let told = nearest(both.into_iter(), &least).expect("told");
        assert!(told.contains("0.9 measured, sure of 0.85"), "{told}");
        let told = nearest(both[..1].iter().copied(), &least).expect("told");
        assert!(told.contains("`min_relative_accuracy` alone"), "{told}");
    }
}
