//! Boxes of a detector: keeps those that no better one covers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};

use crate::{Error, named, numbers, spec};

/// Options of `nms`, non-maximum suppression of one picture's boxes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NmsOptions {
    /// Boxes with lower scores are left out.
    #[serde(default = "quarter")]
    pub min_score: f32,
    /// A box is dropped if a better box of its class overlaps it by more than this share of their union: 0 to 1.
    #[serde(default = "half")]
    pub iou: f32,
    /// Most boxes to keep, the best first.
    #[serde(default = "hundred")]
    pub most: usize,
    /// Whether a box is given by its centre, width and height instead of two corners.
    #[serde(default)]
    pub centers: bool,
}

/// Most boxes that are compared with each other.
const MOST_CANDIDATES: usize = 10_000;

fn quarter() -> f32 {
    0.25
}

fn half() -> f32 {
    0.5
}

fn hundred() -> usize {
    100
}

/// A box with a score: corners `x1, y1, x2, y2`.
#[derive(Debug, Clone, Copy)]
struct ScoredBox {
    corners: [f32; 4],
    score: f32,
    class: usize,
}

pub(crate) fn signature(options: &NmsOptions) -> Result<Signature, Error> {
    if !(0.0..=1.0).contains(&options.iou) || options.min_score.is_nan() {
        let why = "is 0 to 1, and `min_score` a number".to_owned();
        return Err(Error::Option { option: "iou", why });
    }
    Ok(Signature {
        inputs: vec![
            spec("boxes", DataType::Fp32, &[-1, 4]),
            spec("scores", DataType::Fp32, &[-1, -1]),
        ],
        outputs: vec![
            spec("boxes", DataType::Fp32, &[-1, 4]),
            spec("scores", DataType::Fp32, &[-1]),
            spec("classes", DataType::Int64, &[-1]),
        ],
        batched: false,
    })
}

/// `boxes` is `[boxes, 4]`, `scores` `[boxes, classes]`; each box counts for its likeliest class.
pub(crate) fn nms(options: &NmsOptions, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
    let (boxes, scores) = (named(inputs, "boxes")?, named(inputs, "scores")?);
    let [count, sides] = numbers::shape("boxes", boxes)?;
    let [scored, classes] = numbers::shape("scores", scores)?;
    if sides != 4 || scored != count {
        let why = format!(
            "has shape {:?}, and `scores` {:?}",
            boxes.shape(),
            scores.shape()
        );
        return Err(Error::Input {
            input: "boxes",
            why,
        });
    }
    let (boxes, scores) = (
        numbers::floats("boxes", boxes)?,
        numbers::floats("scores", scores)?,
    );
    let mut found: Vec<ScoredBox> = match classes {
        0 => Vec::new(),
        _ => boxes
            .chunks_exact(4)
            .zip(scores.chunks_exact(classes))
            .map(|(sides, scores)| ScoredBox::new(sides, scores, options.centers))
            .filter(|it| it.score >= options.min_score)
            .collect(),
    };
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(MOST_CANDIDATES);
    let mut kept: Vec<ScoredBox> = Vec::new();
    for candidate in found {
        if kept.len() == options.most {
            break;
        }
        let is_covered = |better: &ScoredBox| {
            better.class == candidate.class && better.shared(&candidate) > options.iou
        };
        if !kept.iter().any(is_covered) {
            kept.push(candidate);
        }
    }
    let corners: Vec<f32> = kept.iter().flat_map(|it| it.corners).collect();
    let scores: Vec<f32> = kept.iter().map(|it| it.score).collect();
    let classes: Vec<i64> = kept.iter().map(|it| it.class as i64).collect();
    Ok(vec![
        numbers::tensor("boxes", vec![kept.len(), 4], &corners)?,
        numbers::tensor("scores", vec![kept.len()], &scores)?,
        numbers::tensor("classes", vec![kept.len()], &classes)?,
    ])
}

// === impl ScoredBox ===

impl ScoredBox {
    fn new(sides: &[f32], scores: &[f32], centers: bool) -> Self {
        let at = |index: usize| sides.get(index).copied().unwrap_or(0.0);
        let corners = match centers {
            false => [at(0), at(1), at(2), at(3)],
            true => {
                let (across, down) = (at(2) / 2.0, at(3) / 2.0);
                [at(0) - across, at(1) - down, at(0) + across, at(1) + down]
            }
        };
        // A score of NaN counts as none, and hides no other class.
        let likeliest = scores.iter().copied().enumerate();
        let likeliest = likeliest.filter(|(_, score)| !score.is_nan());
        let likeliest = likeliest.max_by(|(at, a), (other, b)| a.total_cmp(b).then(other.cmp(at)));
        let (class, score) = likeliest.unwrap_or((0, f32::NEG_INFINITY));
        Self {
            corners,
            score,
            class,
        }
    }

    fn area(&self) -> f64 {
        let [left, top, right, bottom] = self.corners.map(f64::from);
        (right - left).max(0.0) * (bottom - top).max(0.0)
    }

    /// Intersection over union. Areas of large boxes exceed the type of the corners.
    fn shared(&self, other: &Self) -> f32 {
        let [a, b] = [self, other].map(|it| it.corners.map(f64::from));
        let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
        let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
        let both = width * height;
        let either = self.area() + other.area() - both;
        match either > 0.0 {
            true => (both / either) as f32,
            false => 0.0,
        }
    }
}
