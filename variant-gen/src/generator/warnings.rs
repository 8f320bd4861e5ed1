//! Warnings about a registration whose figures mean less than they seem to.

use sextant_types::{Accuracy, Metric, Precision, Variant};

use crate::{guess::Guess, interval};

/// A wider interval of a share says little: this one gives the share to a tenth either way.
const WIDEST: f64 = 0.2;

/// An interval of an error says little if it is wider than this share of the error.
const WIDEST_OF_ERROR: f64 = 1.0;

/// Least number of records for a meaningful resampled interval.
const FEWEST: u64 = 10;

/// Number of records above which the search ends.
const MOST: u64 = 1 << 30;

/// The warnings about the figures of a model's variants.
pub(super) fn of(variants: &[Variant], guess: Option<&Guess>) -> Vec<String> {
    let Some(uploaded) = uploaded(variants) else {
        return Vec::new();
    };
    let wrong = all_wrong(variants).map(str::to_owned);
    let wrong = wrong.or_else(|| no_better(uploaded, guess?));
    wrong.into_iter().chain(too_few(uploaded)).collect()
}

/// The figure of the file as it was uploaded; that of the best variant if none computes as the file
/// does.
fn uploaded(variants: &[Variant]) -> Option<&Accuracy> {
    let best = |single: bool| {
        let of = variants.iter().filter(move |it| {
            let is_single = it.spec.precision == Precision::Fp32;
            it.accuracy.quality().is_finite() && (is_single || !single)
        });
        of.max_by(|a, b| a.accuracy.quality().total_cmp(&b.accuracy.quality()))
    };
    best(true).or_else(|| best(false)).map(|it| &it.accuracy)
}

/// The warning if no variant answers any record as its label says.
fn all_wrong(variants: &[Variant]) -> Option<&'static str> {
    let is_wrong = |it: &Variant| it.accuracy.metric.higher_is_better() && it.accuracy.value == 0.0;
    let all = !variants.is_empty() && variants.iter().all(is_wrong);
    all.then_some(
        "warning: no record is answered as its label says: is this the output to score (`--output`), are the labels \
         numbered as its classes are, and are the records in their order?",
    )
}

fn no_better(uploaded: &Accuracy, guess: &Guess) -> Option<String> {
    let metric = uploaded.metric;
    let Guess { value, by } = guess;
    let how = match compares_numbers(metric) {
        true => ("of the unit and the scale that", "has"),
        false => ("numbered as the classes of", "are"),
    };
    (uploaded.quality() <= metric.quality(*value)).then(|| {
        format!(
            "warning: {} `{}` is no better than `{}`, which always answering {by} scores: are the labels those of these \
             records, in their order, and {} the scored output (`--output`) {}?",
            metric.name(),
            short(uploaded.value),
            short(*value),
            how.0,
            how.1,
        )
    })
}

/// Whether the metric compares numbers of the label with those of the output at the same places.
fn compares_numbers(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError
            | Metric::R2
            | Metric::Cosine
            | Metric::BoxOverlap
    )
}

/// The warning if the records are too few, with a number that would be enough.
fn too_few(uploaded: &Accuracy) -> Option<String> {
    let wanted = enough(uploaded).filter(|wanted| *wanted > uploaded.records)?;
    let records = match uploaded.records {
        1 => "1 record says".to_owned(),
        many => format!("{many} records say"),
    };
    Some(format!(
        "warning: {records} little: `{}` was measured, and between `{}` and `{}` is likely; targets are compared with the \
         worse end; about {wanted} records would do",
        short(uploaded.value),
        short(uploaded.lower),
        short(uploaded.upper),
    ))
}

/// Number of records that would narrow the interval enough; `None` if it is narrow enough.
fn enough(of: &Accuracy) -> Option<u64> {
    let width = of.upper - of.lower;
    let records = of.records.max(1);
    if of.metric.is_share_of_records() {
        let is_wide = |records: &u64| {
            let at = interval::wilson(of.value * *records as f64, *records);
            at.upper - at.lower > WIDEST
        };
        let mut tried = std::iter::successors(Some(records), |it| Some(it + it.div_ceil(10)));
        let enough = tried.find(|records| !is_wide(records) || *records > MOST);
        return is_wide(&records).then_some(enough?);
    }
    let widest = match of.metric.higher_is_better() {
        true => WIDEST,
        false => WIDEST_OF_ERROR * of.value.abs(),
    };
    let times = (width / widest).powi(2);
    let narrow = match times.is_finite() && times > 1.0 {
        true => (records as f64 * times).ceil() as u64,
        false => 0,
    };
    Some(narrow.max(FEWEST)).filter(|wanted| *wanted > records)
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::AccuracyKind;

    use super::*;

    fn share(right: f64, records: u64) -> Accuracy {
        let interval = interval::wilson(right, records);
        Accuracy {
            kind: AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: interval.value,
            lower: interval.lower,
            upper: interval.upper,
            records,
            evaluation_batch: 32,
        }
    }

    #[test]
    fn two_records_say_little_and_how_many_would_do_is_told() {
        let told = too_few(&share(2.0, 2)).expect("told");
        assert!(
            told.starts_with("warning: 2 records say little: `1`"),
            "{told}"
        );
        assert!(told.contains("`0.342`"), "{told}");
        let wanted = enough(&share(2.0, 2)).expect("a number");
        let at = share(wanted as f64, wanted);
        assert!(at.upper - at.lower <= WIDEST && wanted < 20, "{wanted}");
        assert_eq!(too_few(&share(344.0, 360)), None);
        assert!(enough(&share(10.0, 20)).is_some_and(|it| (85..120).contains(&it)));
    }

    #[test]
    fn a_share_that_guessing_reaches_is_warned_of() {
        let guess = Guess {
            value: 0.4,
            by: "the commonest label".to_owned(),
        };
        for (right, warns) in [(236.0, true), (400.0, true), (401.0, false)] {
            let told = no_better(&share(right, 1000), &guess);
            assert_eq!(told.is_some(), warns, "{told:?}");
        }
    }

    #[test]
    fn an_error_that_one_number_reaches_is_warned_of() {
        let guess = Guess {
            value: 2.0,
            by: "the labels' median".to_owned(),
        };
        for (value, warns) in [(1.9, false), (2.0, true), (7.0, true)] {
            let of = Accuracy {
                metric: Metric::MeanAbsoluteError,
                value,
                ..share(1.0, 100)
            };
            let told = no_better(&of, &guess);
            assert_eq!(told.is_some(), warns, "{told:?}");
            let is_of_numbers = |told: String| told.contains("of the unit and the scale");
            assert!(told.is_none_or(is_of_numbers));
        }
    }

    #[test]
    fn an_error_of_few_records_is_warned_of() {
        let error = |value, lower, upper, records| Accuracy {
            metric: Metric::MeanAbsoluteError,
            value,
            lower,
            upper,
            ..share(1.0, records)
        };
        assert_eq!(enough(&error(1.0, 1.0, 1.0, 1)), Some(FEWEST));
        assert_eq!(enough(&error(1.0, 0.9, 1.1, 100)), None);
        assert_eq!(enough(&error(1.0, 0.0, 2.0, 100)), Some(400));
        assert_eq!(enough(&error(0.0, 0.0, 0.0, 100)), None);
    }
}
