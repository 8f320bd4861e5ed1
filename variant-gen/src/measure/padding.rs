//! Whether padded inputs get the same answers.

use sextant_types::{OutputAxis, Padding, Precision, Tensor};

use super::{MeasureError, run, sweep::Sweep, unsizable};
use crate::score::{ScoreError, reals};

/// How far padding may change outputs, relative to their length; other batches change the arithmetic as well. In other
/// precisions than single, the change that the precision itself makes is added.
const TOLERANCE: f64 = 0.01;

impl Sweep<'_> {
    /// The declared padding, with the outputs' axes that are as long as the inputs. `None` if nothing was declared, or
    /// if inputs have one element and nothing can be found out.
    ///
    /// The first half of a record runs alone, and padded to the whole length.
    pub(super) fn padding(&self, dims: &[u64]) -> Result<Option<Padding>, MeasureError> {
        let Some(declared) = self.subject.padding else {
            return Ok(None);
        };
        let length = dims.first().copied().unwrap_or(0);
        if length < 2 || dims.iter().any(|size| *size != length) {
            return Ok(None);
        }
        let half = length / 2;
        let signature = self.subject.signature;
        let short = self.inputs(1, &vec![half; dims.len()])?;
        let alone = run(self.model, &short, 1)?;
        let padded = declared.pad(signature, &short, length).map_err(unsizable)?;
        let mut together = run(self.model, &padded, 1)?;
        let found = Padding {
            cropped: followers(&alone, &together, (half, length)),
            ..declared.clone()
        };
        // An output that cannot be cut back differs in length, and so in everything.
        let cut = found.crop(&mut together, half, length);
        let share = cut.map_or(1.0, |()| distance(&alone, &together));
        let exact = matches!(
            self.subject.request.precision,
            Precision::Fp32 | Precision::Tf32
        );
        match exact {
            true if share > TOLERANCE => Err(MeasureError::Padding {
                percent: 100.0 * share,
            }),
            false if share > TOLERANCE + self.of_precision()? => Ok(None),
            _ => Ok(Some(found)),
        }
    }

    /// Distance of a record's answer from that in single precision, relative to the latter; 0 if that is not known.
    fn of_precision(&self) -> Result<f64, MeasureError> {
        let known = self.subject.uploaded.and_then(|uploaded| uploaded.first());
        let Some(known) = known else {
            return Ok(0.0);
        };
        let record = self
            .subject
            .validation
            .spread(1)
            .map_err(ScoreError::from)?;
        let inputs = record.first().map_or(&[][..], Vec::as_slice);
        Ok(distance(&known, &run(self.model, inputs, 1)?))
    }
}

/// The axes of outputs that are as long as the inputs, in both runs.
fn followers(alone: &[Tensor], together: &[Tensor], (half, length): (u64, u64)) -> Vec<OutputAxis> {
    let mut found = Vec::new();
    for (output, (short, long)) in alone.iter().zip(together).enumerate() {
        let axes = short.shape().iter().zip(long.shape()).enumerate();
        let follows =
            |(short, long): (&usize, &usize)| (*short as u64, *long as u64) == (half, length);
        let axes = axes.skip(1).filter(|(_, sizes)| follows(*sizes));
        found.extend(axes.map(|(axis, _)| OutputAxis { output, axis }));
    }
    found
}

/// The greatest distance of an output from the other, relative to its length; 1 if their shapes or strings differ.
fn distance(alone: &[Tensor], together: &[Tensor]) -> f64 {
    let pairs = alone.iter().zip(together);
    let distances = pairs.map(|(a, b)| match (reals(a), reals(b)) {
        _ if a.shape() != b.shape() => 1.0,
        (Some(a), Some(b)) => {
            // Places that are masked out are infinite in both.
            let square = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).powi(2) };
            let finite = a.iter().filter(|a| a.is_finite());
            let length: f64 = finite.map(|a| a * a).sum();
            let apart: f64 = a.iter().zip(&b).map(square).sum();
            match apart == 0.0 {
                true => 0.0,
                false => (apart / length.max(f64::MIN_POSITIVE)).sqrt().min(1.0),
            }
        }
        _ => f64::from(u8::from(a != b)),
    });
    // NaN counts as different.
    let distances = distances.map(|share| if share.is_nan() { 1.0 } else { share });
    distances.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_infinite_in_both_is_no_distance() {
        let row = |values: [f32; 3]| {
            let row = Tensor::from_elements(vec![1, 3], &values);
            [row.expect("three elements")]
        };
        let masked = row([f32::NEG_INFINITY, 3.0, 4.0]);
        assert_eq!(distance(&masked, &masked), 0.0);
        let near = distance(&masked, &row([f32::NEG_INFINITY, 3.0, 4.5]));
        assert!((near - 0.1).abs() < 1e-9, "{near}");
        let open = row([0.0, 3.0, 4.0]);
        let nothing = row([f32::NAN; 3]);
        for (one, other) in [(&masked, &open), (&open, &masked), (&nothing, &nothing)] {
            assert_eq!(distance(one, other), 1.0);
        }
    }
}
