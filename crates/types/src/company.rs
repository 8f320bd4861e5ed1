//! Whether rows that were answered in company equal those that are answered alone.
//!
//! Registration judges batches by it before they are served, and the dispatcher judges samples of batches while they
//! are served.

use crate::{Tensor, convert};

/// How much numbers may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    absolute: f64,
    /// As a share of the larger of the two.
    relative: f64,
    /// As a share of the largest number in the row: sums of large numbers leave such a remainder where they cancel out.
    of_row: f64,
}

/// For arithmetic in single precision, in which sums may be computed in another order.
const EXACT: Tolerance = Tolerance {
    absolute: 1e-4,
    relative: 1e-3,
    of_row: 1e-5,
};

/// For arithmetic in 16 bits, if the answer in single precision is not known.
const HALF: Tolerance = Tolerance {
    absolute: 1e-3,
    relative: 4e-3,
    of_row: 1e-3,
};

/// How a row in company differs from the same row alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// It does not differ, within the precision of the arithmetic.
    None,
    /// Its numbers or text differ.
    Values,
    /// It has other dimensions or another type.
    Shape,
}

/// How far the rows of an output lie from the answer in single precision, in company and alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Distances {
    together: f64,
    alone: f64,
    uploaded: f64,
    most_together: f64,
    most_alone: f64,
    rows: u32,
    /// Whether an output's elements are not floats. Distances are then shares of elements that differ.
    is_whole: bool,
}

// === impl Tolerance ===

impl Tolerance {
    /// The tolerance for a file whose numbers have 16 bits, or for any other file: 1e-4 absolutely, a thousandth of the
    /// larger number, and 1e-5 of the largest number in the tensor; a multiple of these in 16 bits.
    pub fn of(is_half: bool) -> Self {
        match is_half {
            true => HALF,
            false => EXACT,
        }
    }

    /// Compares an output, or rows of it, with the same rows alone. Whole numbers and text must be equal.
    pub fn compare(self, together: &Tensor, alone: &Tensor) -> Difference {
        if together.shape() != alone.shape() || together.data_type() != alone.data_type() {
            return Difference::Shape;
        }
        let is_same = match (reals(together), reals(alone)) {
            (Some(a), Some(b)) if convert::is_float(alone.data_type()) => self.are_close(&a, &b),
            _ => together == alone,
        };
        match is_same {
            true => Difference::None,
            false => Difference::Values,
        }
    }

    fn are_close(self, ones: &[f64], others: &[f64]) -> bool {
        let finite = ones.iter().copied().filter(|it| it.is_finite());
        let of_row = self.of_row * finite.map(f64::abs).fold(0.0, f64::max);
        ones.iter().zip(others).all(|(a, b)| {
            let limit = self.absolute + (self.relative * a.abs().max(b.abs())).max(of_row);
            // If a number is infinite, so is the limit.
            let is_within = limit.is_finite() && (a - b).abs() <= limit;
            a == b || (a.is_nan() && b.is_nan()) || is_within
        })
    }
}

/// Whether one of these outputs has a near tie between two classes: the two greatest elements of a vector of floats are
/// practically equal. Which of the two a whole number in another output names then depends on the order of a sum.
pub fn is_near_tie(alone: &[Tensor]) -> bool {
    let mut outputs = alone.iter().filter(|it| convert::is_float(it.data_type()));
    outputs.any(|output| {
        let width = output.shape().last().copied().unwrap_or(0);
        let values = reals(output).unwrap_or_default();
        width > 1 && values.chunks(width).any(are_two_greatest_close)
    })
}

fn are_two_greatest_close(vector: &[f64]) -> bool {
    let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for value in vector {
        if *value > first {
            second = first;
            first = *value;
        } else if *value > second {
            second = *value;
        }
    }
    first - second <= EXACT.absolute.min(EXACT.of_row * first.abs().max(1.0))
}

// === impl Distances ===

impl Distances {
    /// Adds a row of one output, if all three can be compared.
    pub fn add(&mut self, together: &Tensor, alone: &Tensor, uploaded: &Tensor) {
        let (a, b) = (apart(together, uploaded), apart(alone, uploaded));
        self.together += a;
        self.alone += b;
        self.uploaded += length(uploaded);
        self.most_together = self.most_together.max(a);
        self.most_alone = self.most_alone.max(b);
        self.rows += 1;
        self.is_whole = !convert::is_float(uploaded.data_type());
    }

    /// Whether nothing was added.
    pub fn is_empty(self) -> bool {
        self.rows == 0
    }

    /// Whether rows in company lie no farther away than rows alone, on average and at worst.
    pub fn are_no_worse(self) -> bool {
        let rows = f64::from(self.rows.max(1));
        if self.is_whole {
            // One more row may fall to the other side of a near tie.
            return self.together <= self.alone + 1.0;
        }
        let limit = EXACT.absolute + EXACT.relative * self.uploaded / rows;
        let is_within = |one: f64, other: f64| one <= other + limit;
        is_within(self.together / rows, self.alone / rows)
            && is_within(self.most_together, self.most_alone)
    }
}

/// Root mean square of the differences. For whole numbers and text, the share of the elements that differ. Infinite if
/// they cannot be compared.
fn apart(one: &Tensor, other: &Tensor) -> f64 {
    if one.shape() != other.shape() || one.data_type() != other.data_type() {
        return f64::INFINITY;
    }
    let (Some(ones), Some(others)) = (reals(one), reals(other)) else {
        return f64::from(u8::from(one != other));
    };
    let is_float = convert::is_float(one.data_type());
    let square = |(a, b): (&f64, &f64)| match is_float {
        _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        true => (a - b).powi(2),
        false => 1.0,
    };
    let sum: f64 = ones.iter().zip(&others).map(square).sum();
    let mean = (sum / ones.len().max(1) as f64).sqrt();
    if mean.is_nan() { f64::INFINITY } else { mean }
}

/// Root mean square of an output's elements; 0 for whole numbers and text.
fn length(of: &Tensor) -> f64 {
    let values = reals(of).filter(|_| convert::is_float(of.data_type()));
    let Some(values) = values.filter(|values| !values.is_empty()) else {
        return 0.0;
    };
    let finite = values.iter().filter(|it| it.is_finite());
    let sum: f64 = finite.map(|it| it * it).sum();
    (sum / values.len() as f64).sqrt()
}

/// How far one tensor lies from another, as a share of the other's length; infinite if they cannot be compared.
pub fn relative_distance(one: &Tensor, other: &Tensor) -> f64 {
    let distance = apart(one, other);
    match distance == 0.0 {
        true => 0.0,
        false => distance / length(other).max(f64::MIN_POSITIVE),
    }
}

/// Numbers as doubles; `None` for text.
fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    let numbers = convert::numbers(tensor)?;
    Some(numbers.map(convert::Number::real).collect())
}
