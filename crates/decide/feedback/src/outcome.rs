//! The input for judging versions: one number from 0 to 1 for each row.

use sextant_types::{Metric, RewardDirection};

use crate::Kind;

/// The quality of an answer by the feedback on it, on a scale from 0 to 1 on which larger is better, whichever
/// `rewards` are. `None` if the score has no such scale: an error has no largest value, and a reward may lie outside 0
/// to 1.
pub fn outcome(
    metric: Metric,
    rewards: RewardDirection,
    (kind, score): (Kind, f64),
) -> Option<f64> {
    let is_share = metric.is_share_of_records() || metric == Metric::F1Micro;
    let has_scale = kind != Kind::Label || is_share;
    let value = match (kind, rewards) {
        (Kind::Reward, RewardDirection::Lower) => 1.0 - score,
        _ => score,
    };
    (has_scale && (0.0..=1.0).contains(&score)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_reward_is_the_better_one_where_that_is_set() {
        let of = |rewards, kind| outcome(Metric::Top1, rewards, (kind, 0.25));
        assert_eq!(of(RewardDirection::Higher, Kind::Reward), Some(0.25));
        assert_eq!(of(RewardDirection::Lower, Kind::Reward), Some(0.75));
        // Labels are right or wrong, and the preferred answer was the better one.
        for kind in [Kind::Label, Kind::Preference] {
            assert_eq!(of(RewardDirection::Lower, kind), Some(0.25), "{kind:?}");
        }
    }

    #[test]
    fn what_has_no_scale_is_no_outcome() {
        let of = |metric, kind, score| outcome(metric, RewardDirection::Lower, (kind, score));
        for score in [-0.5, 1.5, f64::NAN] {
            assert_eq!(of(Metric::Top1, Kind::Reward, score), None, "{score}");
        }
        assert_eq!(of(Metric::MeanAbsoluteError, Kind::Label, 0.5), None);
        let rewarded = of(Metric::MeanAbsoluteError, Kind::Reward, 1.0);
        assert_eq!(rewarded, Some(0.0));
    }
}
