//! Boxes: their overlap, and mean average precision as COCO defines it.
//!
//! A box is `x1, y1, x2, y2`. A detection has the model's confidence and the class after it; a label has the class.
//! Within a record and a class, detections are matched in the order of confidence; each takes the remaining label that
//! it overlaps most, if the overlap is large enough. Precision at a recall is the greatest at any recall at least as
//! high. It is averaged over 101 recalls from 0 to 1, then over ten overlaps from 0.5 to 0.95, then over the classes
//! that occur.

use std::collections::BTreeMap;

use sextant_types::Tensor;

use super::{Evidence, ScoreError, Scorer, reals};
use crate::interval::{Interval, bootstrap_within};

/// Overlaps from which a box counts as found: 0.5, 0.55, .. 0.95.
const OVERLAPS: usize = 10;

/// Recalls at which precision is taken.
const RECALLS: usize = 101;

/// The detections of one record.
#[derive(Debug, Default)]
pub(super) struct RecordDetections {
    boxes: Vec<Detection>,
    /// Labels by class.
    labels: BTreeMap<u32, u32>,
}

/// A detection.
#[derive(Debug, Clone, Copy)]
struct Detection {
    class: u32,
    sure: f64,
    /// By overlap: whether it matches a label.
    is_right: [bool; OVERLAPS],
}

/// A class over all records: its detections by confidence, with the record of each.
struct Class {
    boxes: Vec<(usize, Detection)>,
    /// By record.
    labels: Vec<(usize, u32)>,
}

impl Scorer<'_> {
    /// Adds boxes at the places of their labels. A label without an area is no box.
    pub(super) fn push_overlaps(
        &mut self,
        output: &Tensor,
        wanted: &[f64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let values = reals(output).filter(|values| values.len() == wanted.len());
        let values = values.ok_or_else(|| self.misshapen(output, records))?;
        let per_record = self.labels.per_record.max(1);
        let rows = values.chunks(per_record).zip(wanted.chunks(per_record));
        for (at, (have, want)) in rows.enumerate() {
            if have.iter().any(|value| !value.is_finite()) {
                return Err(self.not_finite(self.records + at));
            }
            self.add(mean_overlap(have, want));
        }
        Ok(())
    }

    /// Adds boxes that are to be found, in any order.
    pub(super) fn push_boxes(
        &mut self,
        output: &Tensor,
        wanted: &[f64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let values = reals(output).filter(|values| values.len() % (6 * records.max(1)) == 0);
        let values = values.ok_or_else(|| self.misshapen(output, records))?;
        let width = values.len() / records.max(1);
        let of_record = |at: usize| {
            (
                &values[at * width..(at + 1) * width],
                self.labels.per_record,
            )
        };
        let mut found = Vec::with_capacity(records);
        for at in 0..records {
            let (have, per_record) = of_record(at);
            if have.iter().any(|value| !value.is_finite()) {
                return Err(self.not_finite(self.records + at));
            }
            let want = &wanted[at * per_record..(at + 1) * per_record];
            found.push(RecordDetections::of(have, want));
        }
        if let Evidence::Boxes(all) = &mut self.evidence {
            all.extend(found);
        }
        Ok(())
    }
}

// === impl RecordDetections ===

impl RecordDetections {
    /// Matches detections `x1, y1, x2, y2, sure, class` with labels `x1, y1, x2, y2, class`. A detection with a class
    /// below 0, or without confidence, is padding.
    fn of(have: &[f64], want: &[f64]) -> Self {
        let labels = want.chunks_exact(5).filter(|label| label[4] >= 0.0);
        let labels: Vec<&[f64]> = labels.collect();
        let mut boxes: Vec<&[f64]> = have
            .chunks_exact(6)
            .filter(|it| it[5] >= 0.0 && it[4] > 0.0)
            .collect();
        boxes.sort_by(|a, b| b[4].total_cmp(&a[4]));
        let mut found = Self::default();
        for label in &labels {
            *found.labels.entry(label[4] as u32).or_default() += 1;
        }
        let mut taken = vec![[false; OVERLAPS]; labels.len()];
        for it in boxes {
            let mut is_right = [false; OVERLAPS];
            for (at, is_right) in is_right.iter_mut().enumerate() {
                let least = 0.5 + 0.05 * at as f64;
                let left = labels.iter().enumerate().filter(|(number, label)| {
                    label[4] as u32 == it[5] as u32 && !taken[*number][at]
                });
                let overlaps = left.map(|(number, label)| (number, overlap(it, label)));
                let best = overlaps.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
                // Tenths are not exact in binary.
                if let Some((number, _)) = best.filter(|(_, overlap)| *overlap >= least - 1e-10) {
                    taken[number][at] = true;
                    *is_right = true;
                }
            }
            found.boxes.push(Detection {
                class: it[5] as u32,
                sure: it[4],
                is_right,
            });
        }
        found
    }
}

/// Mean average precision with its interval.
pub(super) fn interval(found: &[RecordDetections]) -> Interval {
    let mut classes: BTreeMap<u32, Class> = BTreeMap::new();
    for (record, found) in found.iter().enumerate() {
        for (class, labels) in &found.labels {
            let of = classes.entry(*class).or_insert(Class {
                boxes: Vec::new(),
                labels: Vec::new(),
            });
            of.labels.push((record, *labels));
        }
    }
    let mut effort = 0;
    for (record, found) in found.iter().enumerate() {
        for it in &found.boxes {
            // A class without labels has no precision.
            if let Some(class) = classes.get_mut(&it.class) {
                class.boxes.push((record, *it));
                effort += OVERLAPS;
            }
        }
    }
    for class in classes.values_mut() {
        class.boxes.sort_by(|a, b| b.1.sure.total_cmp(&a.1.sure));
    }
    bootstrap_within(found.len(), effort, |draws| {
        let mut times = vec![0_u32; found.len()];
        draws.for_each(|record| times[record] += 1);
        let precisions = classes.values().filter_map(|class| class.precision(&times));
        let precisions: Vec<f64> = precisions.collect();
        match precisions.is_empty() {
            true => 0.0,
            false => super::mean(&precisions),
        }
    })
}

// === impl Class ===

impl Class {
    /// Average precision if each record counts as often as `times` says; `None` if no label is left.
    fn precision(&self, times: &[u32]) -> Option<f64> {
        let labels = self.labels.iter();
        let labels = labels.map(|(record, count)| u64::from(times[*record]) * u64::from(*count));
        let labels: u64 = labels.sum();
        if labels == 0 {
            return None;
        }
        let of_overlap = |at| self.precision_at(at, times, labels as f64);
        Some((0..OVERLAPS).map(of_overlap).sum::<f64>() / OVERLAPS as f64)
    }

    fn precision_at(&self, overlap: usize, times: &[u32], labels: f64) -> f64 {
        let (mut right, mut all, mut curve) = (0.0, 0.0, Vec::new());
        for (record, it) in &self.boxes {
            let times = f64::from(times[*record]);
            if times == 0.0 {
                continue;
            }
            all += times;
            if it.is_right[overlap] {
                right += times;
            }
            curve.push((right / labels, right / all));
        }
        let mut greatest = 0.0;
        for point in curve.iter_mut().rev() {
            greatest = f64::max(greatest, point.1);
            point.1 = greatest;
        }
        let at_recall = |number: usize| {
            let recall = number as f64 / (RECALLS - 1) as f64;
            let at = curve.partition_point(|(reached, _)| *reached < recall - 1e-12);
            curve.get(at).map_or(0.0, |(_, precision)| *precision)
        };
        (0..RECALLS).map(at_recall).sum::<f64>() / RECALLS as f64
    }
}

/// The mean overlap of boxes with the labels at their places; `None` if no label has an area.
pub(crate) fn mean_overlap(have: &[f64], want: &[f64]) -> Option<f64> {
    let pairs = have.chunks_exact(4).zip(want.chunks_exact(4));
    let overlaps = pairs.filter(|(_, want)| area(want) > 0.0);
    let overlaps: Vec<f64> = overlaps.map(|(have, want)| overlap(have, want)).collect();
    (!overlaps.is_empty()).then(|| super::mean(&overlaps))
}

fn area(of: &[f64]) -> f64 {
    (of[2] - of[0]).max(0.0) * (of[3] - of[1]).max(0.0)
}

/// Intersection over union.
fn overlap(a: &[f64], b: &[f64]) -> f64 {
    let width = a[2].min(b[2]) - a[0].max(b[0]);
    let height = a[3].min(b[3]) - a[1].max(b[1]);
    let both = width.max(0.0) * height.max(0.0);
    let either = area(a) + area(b) - both;
    match either > 0.0 {
        true => both / either,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::Metric;

    use super::*;
    use crate::validation::{Expectation, Labels, UNSCORED};

    fn tensor(shape: &[usize], values: &[f64]) -> Tensor {
        Tensor::from_elements(shape.to_vec(), values).expect("fits")
    }

    /// The value by pycocotools 2.0.11 on the same boxes. The remaining places for boxes are padding.
    #[test]
    fn average_precision_is_that_of_coco() {
        let found: [&[[f64; 6]]; 3] = [
            &[
                [12.0, 11.0, 52.0, 49.0, 0.9, 0.0],
                [61.0, 58.0, 92.0, 94.0, 0.8, 1.0],
                [0.0, 0.0, 15.0, 15.0, 0.3, 0.0],
                [0.0; 6],
            ],
            &[
                [6.0, 4.0, 31.0, 41.0, 0.7, 0.0],
                [42.0, 14.0, 78.0, 66.0, 0.6, 0.0],
                [40.0, 12.0, 81.0, 58.0, 0.5, 0.0],
                [22.0, 72.0, 64.0, 90.0, 0.95, 1.0],
            ],
            &[
                [1.0, 1.0, 19.0, 24.0, 0.4, 1.0],
                [50.0, 50.0, 60.0, 60.0, 0.85, 1.0],
                [2.0, 0.0, 20.0, 21.0, 0.2, 0.0],
                [1.0, 1.0, 2.0, 2.0, 0.9, -1.0],
            ],
        ];
        let none = [0.0, 0.0, 0.0, 0.0, -1.0];
        let labels: [[f64; 5]; 9] = [
            [10.0, 10.0, 50.0, 50.0, 0.0],
            [60.0, 60.0, 90.0, 95.0, 1.0],
            none,
            [5.0, 5.0, 30.0, 40.0, 0.0],
            [40.0, 10.0, 80.0, 60.0, 0.0],
            [20.0, 70.0, 60.0, 95.0, 1.0],
            [0.0, 0.0, 20.0, 20.0, 1.0],
            none,
            none,
        ];
        let labels = Labels {
            per_record: 15,
            values: Expectation::Real(labels.concat()),
        };
        let values: Vec<f64> = found.iter().flat_map(|it| it.concat()).collect();
        let mut scorer = Scorer::new(Metric::MeanAveragePrecision, &labels, "boxes");
        scorer
            .push(&tensor(&[3, 4, 6], &values), 3)
            .expect("scores");
        let accuracy = scorer.finish(3);
        assert!(
            (accuracy.value - 0.556_889_438_943_894_4).abs() < 1e-12,
            "{accuracy:?}"
        );
        assert!(accuracy.lower <= accuracy.value && accuracy.value <= accuracy.upper);
        assert_eq!(accuracy.records, 3);
    }

    #[test]
    fn overlap_is_what_both_cover_of_what_either_does() {
        let labels = Labels {
            per_record: 8,
            values: Expectation::Real(vec![
                0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, // one box, and none
                0.0, 0.0, 4.0, 1.0, 5.0, 5.0, 6.0, 6.0,
            ]),
        };
        let output = tensor(
            &[2, 2, 4],
            &[
                1.0, 1.0, 3.0, 3.0, 9.0, 9.0, 9.0, 9.0, // 1 of 7
                0.0, 0.0, 2.0, 1.0, 5.0, 5.0, 6.0, 6.0, // a half, and all
            ],
        );
        let mut scorer = Scorer::new(Metric::BoxOverlap, &labels, "boxes");
        scorer.push(&output, 2).expect("scores");
        let value = scorer.finish(2).value;
        assert!((value - (1.0 / 7.0 + 0.75) / 2.0).abs() < 1e-12, "{value}");
        let mut scorer = Scorer::new(Metric::BoxOverlap, &labels, "boxes");
        let nan = tensor(&[1, 2, 4], &[f64::NAN; 8]);
        assert!(matches!(
            scorer.push(&nan, 1),
            Err(ScoreError::NotFinite { record: 1, .. })
        ));
    }

    #[test]
    fn tokens_count_alike_however_long_their_records_are() {
        let labels = |values: &[u64], per_record| Labels {
            per_record,
            values: Expectation::Classes(values.to_vec()),
        };
        let long = labels(&[1, UNSCORED, 0, 1], 4);
        let short = labels(&[1, 0], 1);
        let mut scorer = Scorer::new(Metric::TokenAccuracy, &long, "y");
        let of_long = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
        scorer
            .push(&tensor(&[1, 4, 2], &of_long), 1)
            .expect("scores");
        scorer.turn_to(&short);
        scorer
            .push(&tensor(&[2, 1, 2], &[0.0, 1.0, 1.0, 0.0]), 2)
            .expect("scores");
        let accuracy = scorer.finish(2);
        // Four of the five scored tokens are right.
        assert_eq!((accuracy.value, accuracy.records), (0.8, 3));
        let wrong = labels(&[2, 0], 1);
        let mut scorer = Scorer::new(Metric::TokenAccuracy, &wrong, "y");
        assert!(scorer.push(&tensor(&[2, 1, 2], &[0.0; 4]), 2).is_err());
    }
}
