//! Whether two answers agree.

use sextant_types::{Metric, Tensor, Variant, convert};

/// The farthest that a numeric answer may lie from the uploaded file's, as a share of the length of the uploaded
/// file's.
const FURTHEST: f64 = 0.01;

/// The part of an answer that a metric looks at.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    /// The position of the greatest element of each vector along the last axis.
    Greatest,
    /// All elements.
    Same,
    /// The distance.
    Near,
}

/// Counts the rows in which an answer agrees with the uploaded file's. The output that the application's metric looks
/// at is compared. Where classes are scored, the greatest element of each vector must be at the same position. Where
/// whole answers are scored, all elements must be the same. Where numbers are scored, the distance may be at most a
/// hundredth of the length of the uploaded file's. Returns `None` if the outputs cannot be compared.
pub(super) fn agreeing(
    variant: &Variant,
    (answer, uploaded): (&[Tensor], &[Tensor]),
    rows: u32,
) -> Option<u64> {
    let looks = Looks::of(variant.accuracy.metric);
    let at = looks.output(answer);
    let (answer, uploaded) = (answer.get(at)?, uploaded.get(at)?);
    let is_like = answer.shape() == uploaded.shape() && answer.data_type() == uploaded.data_type();
    if !is_like || answer.is_empty() {
        return None;
    }
    let rows = match variant.signature.batched {
        true if answer.rows() == rows as usize => rows as usize,
        true => return None,
        false => 1,
    };
    let (Some(a), Some(b)) = (reals(answer), reals(uploaded)) else {
        return equal_texts(answer, uploaded, rows);
    };
    let (width, vector) = (a.len() / rows, answer.shape().last().copied()?);
    // A single column has no greatest element.
    let looks = match (looks, vector) {
        (Looks::Greatest, 1) => Looks::Near,
        (looks, _) => looks,
    };
    let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
    Some(rows.filter(|(a, b)| looks.alike(vector, a, b)).count() as u64)
}

fn equal_texts(answer: &Tensor, uploaded: &Tensor, rows: usize) -> Option<u64> {
    if rows == 1 {
        return Some(u64::from(answer == uploaded));
    }
    let row = |of: &Tensor, at| of.slice_rows(at, 1).ok();
    let same = (0..rows).filter(|at| row(answer, *at) == row(uploaded, *at));
    Some(same.count() as u64)
}

/// Numbers as doubles; `None` for strings.
fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    Some(
        convert::numbers(tensor)?
            .map(convert::Number::real)
            .collect(),
    )
}

/// The position of the first greatest element; `None` if one is not a number.
fn greatest(values: &[f64]) -> Option<usize> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut best: Option<(usize, f64)> = None;
    for (at, value) in values.iter().enumerate() {
        if best.is_none_or(|(_, greatest)| *value > greatest) {
            best = Some((at, *value));
        }
    }
    best.map(|(at, _)| at)
}

// === impl Looks ===

impl Looks {
    fn of(metric: Metric) -> Self {
        match metric {
            Metric::Top1
            | Metric::TopK(_)
            | Metric::F1
            | Metric::F1Micro
            | Metric::Auc
            | Metric::LogLoss
            | Metric::TokenAccuracy => Self::Greatest,
            Metric::Exact => Self::Same,
            Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError
            | Metric::R2
            | Metric::Cosine
            | Metric::BoxOverlap
            | Metric::F1MultiLabel
            | Metric::MeanAveragePrecision
            | Metric::Custom => Self::Near,
        }
    }

    /// The position of the output that is compared.
    fn output(self, outputs: &[Tensor]) -> usize {
        let is_float = |tensor: &Tensor| convert::is_float(tensor.data_type());
        let mut of = outputs.iter();
        let at = match self {
            Self::Greatest => of.position(|it| is_float(it) && it.shape().len() > 1),
            Self::Same => of.position(|it| !is_float(it)),
            Self::Near => of.position(is_float),
        };
        at.unwrap_or(0)
    }

    fn alike(self, vector: usize, a: &[f64], b: &[f64]) -> bool {
        match self {
            Self::Greatest => {
                let mut vectors = a.chunks(vector).zip(b.chunks(vector));
                vectors.all(|(a, b)| greatest(a) == greatest(b))
            }
            Self::Same => a == b,
            Self::Near => {
                let square = |sum: f64, x: f64| sum + x * x;
                // Positions that are masked out are infinite, or not numbers, in both.
                let is_same = |a: &f64, b: &f64| a == b || (a.is_nan() && b.is_nan());
                let differ = a.iter().zip(b).filter(|(a, b)| !is_same(a, b));
                let apart = differ.map(|(a, b)| a - b).fold(0.0, square);
                let finite = b.iter().copied().filter(|b| b.is_finite());
                apart.sqrt() <= FURTHEST * finite.fold(0.0, square).sqrt()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASKED: f64 = f64::NEG_INFINITY;

    #[test]
    fn numbers_are_near_where_the_same_places_are_infinite() {
        let near = |a: [f64; 3], b: [f64; 3]| Looks::Near.alike(3, &a, &b);
        assert!(near([MASKED, 30.0, 40.0], [MASKED, 30.0, 40.1]));
        assert!(!near([MASKED, 30.0, 40.0], [MASKED, 30.0, 41.0]));
        assert!(!near([1.0, 30.0, 40.0], [MASKED, 30.0, 40.0]));
        assert!(!near([MASKED, 30.0, 40.0], [1.0, 30.0, 40.0]));
        assert!(!near([f64::NAN, 30.0, 40.0], [1.0, 30.0, 40.0]));
        assert!(near([f64::NAN, 30.0, 40.0], [f64::NAN, 30.0, 40.0]));
    }

    #[test]
    fn what_is_no_number_is_no_class() {
        let same = |a: [f64; 2], b: [f64; 2]| Looks::Greatest.alike(2, &a, &b);
        assert!(same([2.0, 1.0], [0.9, 0.1]));
        assert!(!same([f64::NAN, 1.0], [0.9, 0.1]));
        assert!(!same([f64::NAN; 2], [0.9, 0.1]));
        assert!(same([f64::NAN; 2], [0.1, f64::NAN]));
    }
}
