//! What the judging of versions takes: one number from 0 to 1 for each row.

use sextant_types::Metric;

use crate::Kind;

/// How good an answer was by what was said of it, on a scale from 0 to 1, where larger is better. `None` where the score
/// has no such scale: an error has no largest value, a reward beyond 0 to 1 neither.
pub fn outcome(metric: Metric, kind: Kind, score: f64) -> Option<f64> {
    let is_share = metric.is_share_of_records() || metric == Metric::F1Micro;
    let has_scale = kind != Kind::Label || is_share;
    (has_scale && (0.0..=1.0).contains(&score)).then_some(score)
}
