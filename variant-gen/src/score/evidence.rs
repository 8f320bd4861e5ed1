//! What is kept of the records until the end, and the metric that it makes.

use std::collections::BTreeMap;

use sextant_types::Metric;

use super::boxes::{self, RecordDetections};
use crate::interval::{self, Interval};

/// What is kept of each record, or of each of its labels.
#[derive(Debug)]
pub(super) enum Evidence {
    /// By record: a share or an error. The metric is their mean, or the root of it.
    Scores(Vec<f64>),
    /// By record: the class of each of its labels.
    Classes(Predictions),
    /// By label: the model's confidence in the second class, and whether the label is that class.
    Ranks(Vec<(f64, bool)>),
    /// By record: squared error, sum of the labels, sum of their squares, number of labels.
    Squares(Vec<[f64; 4]>),
    /// By record: tokens whose class is right, and tokens that are scored; or twice the labels that are found, and the
    /// number of found labels plus that of existing ones. The metric is the ratio of the sums.
    Ratios(Vec<(u32, u32)>),
    /// By record: the detections and the labels.
    Boxes(Vec<RecordDetections>),
}

/// The class that was predicted, if any was, and the label.
type Prediction = (Option<u32>, u32);

/// The predictions of records, one after the other: those of a sequence belong together.
#[derive(Debug, Default)]
pub(super) struct Predictions {
    all: Vec<Prediction>,
    /// The end of the predictions of each record.
    ends: Vec<usize>,
}

// === impl Predictions ===

impl Predictions {
    pub(super) fn push(&mut self, record: impl Iterator<Item = Prediction>) {
        self.all.extend(record);
        self.ends.push(self.all.len());
    }

    fn of(&self, record: usize) -> &[Prediction] {
        let start = record.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[record]]
    }
}

// === impl Evidence ===

impl Evidence {
    pub(super) fn of(metric: Metric) -> Self {
        match metric {
            Metric::F1 | Metric::F1Micro => Self::Classes(Predictions::default()),
            Metric::Auc => Self::Ranks(Vec::new()),
            Metric::R2 => Self::Squares(Vec::new()),
            Metric::TokenAccuracy | Metric::F1MultiLabel => Self::Ratios(Vec::new()),
            Metric::MeanAveragePrecision => Self::Boxes(Vec::new()),
            _ => Self::Scores(Vec::new()),
        }
    }

    /// The metric with its interval.
    pub(super) fn interval(&self, metric: Metric) -> Interval {
        match self {
            Self::Scores(scores) => match metric {
                Metric::Top1 | Metric::TopK(_) | Metric::Exact => {
                    interval::wilson(scores.iter().sum(), scores.len() as u64)
                }
                // The root keeps the order: each end of the interval becomes its root.
                Metric::RootMeanSquareError => {
                    let squares = interval::bootstrap(scores);
                    Interval {
                        value: squares.value.sqrt(),
                        lower: squares.lower.sqrt(),
                        upper: squares.upper.sqrt(),
                    }
                }
                _ => interval::bootstrap(scores),
            },
            Self::Classes(predictions) => {
                let of = |draws: &mut dyn Iterator<Item = usize>| {
                    let drawn = draws.flat_map(|record| predictions.of(record).iter().copied());
                    match metric {
                        Metric::F1Micro => micro(drawn),
                        _ => macro_average(drawn),
                    }
                };
                let (records, labels) = (predictions.ends.len(), predictions.all.len());
                interval::bootstrap_within(records, labels, of)
            }
            Self::Ranks(ranks) => {
                let (area, positives, negatives) = area(ranks);
                interval::hanley_mcneil(area, positives, negatives)
            }
            Self::Squares(squares) => {
                let of =
                    |draws: &mut dyn Iterator<Item = usize>| explained(draws.map(|at| squares[at]));
                interval::bootstrap_of(squares.len(), of)
            }
            Self::Ratios(ratios) => {
                let of = |draws: &mut dyn Iterator<Item = usize>| {
                    let sum = |(right, all): (u64, u64), at: usize| {
                        let (of_right, of_all) = ratios[at];
                        (right + u64::from(of_right), all + u64::from(of_all))
                    };
                    let (right, all) = draws.fold((0, 0), sum);
                    right as f64 / all.max(1) as f64
                };
                interval::bootstrap_of(ratios.len(), of)
            }
            Self::Boxes(found) => boxes::interval(found),
        }
    }
}

/// F1 of each class that is predicted or a label, averaged.
fn macro_average(pairs: impl Iterator<Item = Prediction>) -> f64 {
    /// Numbers of right predictions, of predictions, of labels.
    type Counts = (u64, u64, u64);
    let mut classes: BTreeMap<u32, Counts> = BTreeMap::new();
    for (predicted, label) in pairs {
        if let Some(predicted) = predicted {
            classes.entry(predicted).or_default().1 += 1;
        }
        let of_label = classes.entry(label).or_default();
        of_label.2 += 1;
        of_label.0 += u64::from(predicted == Some(label));
    }
    // 2 TP / (2 TP + FP + FN), where TP + FP is the number of predictions and TP + FN that of labels.
    let f1 = |(right, predicted, labels): &Counts| {
        2.0 * *right as f64 / (*predicted + *labels).max(1) as f64
    };
    classes.values().map(f1).sum::<f64>() / classes.len().max(1) as f64
}

/// With one label and one prediction each, precision and recall are the share that is right. A missing prediction is a
/// wrong one.
fn micro(pairs: impl Iterator<Item = Prediction>) -> f64 {
    let (mut right, mut all) = (0_u64, 0_u64);
    for (predicted, label) in pairs {
        right += u64::from(predicted == Some(label));
        all += 1;
    }
    right as f64 / all.max(1) as f64
}

/// The area under the curve, computed as Mann-Whitney's statistic, with the numbers of positives and negatives; equal
/// ranks count half.
fn area(ranks: &[(f64, bool)]) -> (f64, u64, u64) {
    let mut sorted = ranks.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = sorted.iter().filter(|(_, positive)| *positive).count() as u64;
    let negatives = sorted.len() as u64 - positives;
    let (mut below, mut area) = (0.0, 0.0);
    for equal in sorted.chunk_by(|a, b| a.0 == b.0) {
        let of_them = equal.iter().filter(|(_, positive)| *positive).count() as f64;
        let others = equal.len() as f64 - of_them;
        area += of_them * (below + others / 2.0);
        below += others;
    }
    match positives * negatives {
        0 => (0.5, positives, negatives),
        pairs => (area / pairs as f64, positives, negatives),
    }
}

/// 1 - squared errors / squared distances of the labels to their mean; 0 if all labels are equal.
fn explained(squares: impl Iterator<Item = [f64; 4]>) -> f64 {
    let (mut errors, mut sum, mut of_squares, mut count) = (0.0, 0.0, 0.0, 0.0);
    for [error, labels, squared, elements] in squares {
        errors += error;
        sum += labels;
        of_squares += squared;
        count += elements;
    }
    let scatter = of_squares - sum * sum / f64::max(count, 1.0);
    if scatter <= 1e-12 * of_squares {
        return if errors == 0.0 { 1.0 } else { 0.0 };
    }
    1.0 - errors / scatter
}
