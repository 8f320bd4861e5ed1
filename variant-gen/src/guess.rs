//! The score of an answer that ignores the record. If a model is no better, it has learnt nothing about its labels, or
//! its labels belong to other records.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sextant_types::{Data, Metric, Tensor};

use crate::validation::{Expectation, Labels, UNSCORED, ValidationSet};

mod numbers;

/// The score of the best answer that is the same for every record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guess {
    /// In the metric's own unit.
    pub value: f64,
    /// What gives this answer, in words.
    pub by: String,
}

/// The best such score for a labelled set. `None` for metrics without such an answer: boxes that are to be found
/// (`map`) have neither a number nor a place that all records share, and the score of a custom metric (`custom`) is not
/// known without running it.
pub fn best(metric: Metric, set: &ValidationSet) -> Option<Guess> {
    let groups = set.parts(usize::MAX).filter(|part| part.begins);
    let labels: Vec<&Labels> = groups.map(|part| part.labels).collect();
    let by = |by: &str| by.to_owned();
    let (value, by) = match metric {
        Metric::Auc => (0.5, by("an answer by chance")),
        Metric::R2 => (0.0, by("the labels' mean")),
        Metric::Exact => {
            let counts = rows(&labels)?;
            (share(&counts, 1)?, by("the commonest label"))
        }
        Metric::LogLoss => (entropy(&classes(&labels)?)?, by("the labels' own shares")),
        Metric::TopK(k) => {
            let named = format!("the {k} commonest labels");
            (share(&classes(&labels)?, k as usize)?, named)
        }
        Metric::Top1 | Metric::F1Micro | Metric::TokenAccuracy => {
            (share(&classes(&labels)?, 1)?, by("the commonest label"))
        }
        Metric::F1 => {
            let counts = classes(&labels)?;
            let share = share(&counts, 1)?;
            let of_one = 2.0 * share / (1.0 + share);
            (of_one / counts.len() as f64, by("the commonest label"))
        }
        metric => return numbers::best(metric, &labels),
    };
    Some(Guess { value, by })
}

/// How often each class is the label.
fn classes(labels: &[&Labels]) -> Option<Vec<u64>> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for labels in labels {
        let Expectation::Classes(classes) = &labels.values else {
            return None;
        };
        for class in classes.iter().filter(|class| **class != UNSCORED) {
            *counts.entry(*class).or_default() += 1;
        }
    }
    Some(counts.into_values().collect())
}

/// How often each whole label occurs.
fn rows(labels: &[&Labels]) -> Option<Vec<u64>> {
    let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
    for labels in labels {
        let Expectation::Exact(tensor) = &labels.values else {
            return None;
        };
        for at in 0..tensor.rows() {
            *counts
                .entry(bytes(&tensor.slice_rows(at, 1).ok()?))
                .or_default() += 1;
        }
    }
    Some(counts.into_values().collect())
}

fn bytes(row: &Tensor) -> Vec<u8> {
    match row.data() {
        Data::Plain(bytes) => bytes.to_vec(),
        Data::Strings(strings) => {
            let each = strings.iter().flat_map(|it| {
                let length = (it.len() as u64).to_le_bytes();
                length.into_iter().chain(it.iter().copied())
            });
            each.collect()
        }
    }
}

/// The sum of the `most` greatest counts, as a share of all.
fn share(counts: &[u64], most: usize) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let mut counts = counts.to_vec();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let greatest: u64 = counts.iter().take(most).sum();
    (all > 0).then(|| greatest as f64 / all as f64)
}

/// The mean of the negative logarithm of each label's share.
fn entropy(counts: &[u64]) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let each = counts.iter().map(|count| {
        let share = *count as f64 / all as f64;
        -share * share.ln()
    });
    (all > 0).then(|| each.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(classes: &[u64]) -> Labels {
        Labels {
            per_record: 1,
            values: Expectation::Classes(classes.to_vec()),
        }
    }

    #[test]
    fn counts_of_several_groups_are_one() {
        let (a, b) = (labels(&[0, 1, 1, UNSCORED]), labels(&[2, 1, 0]));
        let counts = classes(&[&a, &b]).expect("classes");
        assert_eq!(share(&counts, 1), Some(0.5));
        assert_eq!(share(&counts, 2), Some(5.0 / 6.0));
        assert_eq!(share(&counts, 9), Some(1.0));
        assert_eq!(share(&[], 1), None);
    }

    #[test]
    fn equal_shares_have_the_entropy_of_their_number() {
        let entropy = entropy(&[5, 5, 5, 5]).expect("some");
        assert!((entropy - 4f64.ln()).abs() < 1e-12);
        assert_eq!(super::entropy(&[]), None);
    }
}
