//! What a query demands.

use serde::{Deserialize, Serialize};

/// Which of the variants that meet all targets answers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Prefer {
    /// The one that costs least.
    #[default]
    Cost,
    /// The most accurate one. If there is not time for all queries, accuracy gives way before answers do.
    Accuracy,
    /// The one that answers first.
    Latency,
}

/// A name that is not a preference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target `prefer` is `{0}`: it must be `cost`, `accuracy` or `latency`")]
pub struct InvalidPrefer(pub String);

// === impl Prefer ===

impl Prefer {
    /// Every preference.
    pub const ALL: [Self; 3] = [Self::Cost, Self::Accuracy, Self::Latency];

    /// `cost`, `accuracy`, `latency`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Accuracy => "accuracy",
            Self::Latency => "latency",
        }
    }

    fn is_cost(&self) -> bool {
        *self == Self::Cost
    }
}

impl std::str::FromStr for Prefer {
    type Err = InvalidPrefer;

    fn from_str(name: &str) -> Result<Self, InvalidPrefer> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| InvalidPrefer(name.chars().take(64).collect()))
    }
}

/// The targets of one query. `None` means that there is no such target.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Targets {
    /// Deadline in milliseconds, counted from the arrival of the last byte of the request.
    pub latency_ms: Option<f64>,
    /// Least acceptable quality, on the scale of [`crate::Metric::quality`]: compared with the
    /// lower bound of a variant's measured interval, never with the point estimate.
    pub min_quality: Option<f64>,
    /// Least acceptable share of the accuracy of the uploaded file, above 0 and at most 1 ([`relative_quality`]). The
    /// dispatcher converts it into figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_relative_accuracy: Option<f64>,
    /// Least acceptable share of the agreement of the uploaded file with itself, for variants without a known accuracy
    /// ([`LeastQuality`]). Clients do not set it; the dispatcher sets it when it converts a share into figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_agreement: Option<f64>,
    /// The highest price of a thousand queries, in US dollars, at saturation.
    pub max_cost_per_1k_usd: Option<f64>,
    /// Which of the variants that meet all of this answers; `None`: the cheapest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Prefer>,
}

/// A target that cannot be compared with any variant.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("target `{name}` is `{value}`: it must be {rule}")]
pub struct InvalidTarget {
    /// The field's public name.
    pub name: &'static str,
    /// The refused value.
    pub value: f64,
    /// The values that would be accepted.
    pub rule: &'static str,
}

/// The quality that is this share of another. For proportions it is the product. For an error the other value is
/// divided by the share, so that the demand decreases on either side of zero.
pub fn relative_quality(quality: f64, share: f64) -> f64 {
    match quality >= 0.0 {
        true => quality * share,
        false => quality / share,
    }
}

/// The greatest share of another quality at which a quality suffices: the inverse of [`relative_quality`].
pub fn share_of(quality: f64, of: f64) -> f64 {
    let share = match of > 0.0 {
        true => quality / of,
        false => of / quality,
    };
    match quality >= of {
        true if share.is_nan() => 1.0,
        true => share.clamp(1.0, f64::MAX),
        false if share.is_finite() => share.min(1.0),
        false => f64::NEG_INFINITY,
    }
}

/// A variant's quality, as targets are compared with it. Agreement with an uploaded file is not accuracy. It is
/// compared only with other agreement, each as a share of the quality of its own file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quality {
    /// The pessimistic end of a measured accuracy, on the scale of [`crate::Metric::quality`].
    Accuracy(f64),
    /// The share of the quality of its own model's uploaded file, if nothing else is known.
    Agreement(f64),
}

impl Quality {
    /// The figure, of either kind.
    pub fn bound(self) -> f64 {
        match self {
            Self::Accuracy(bound) | Self::Agreement(bound) => bound,
        }
    }

    /// Whether it is better than another. Accuracy measured against labels is better than any agreement.
    pub fn exceeds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Accuracy(_), Self::Agreement(_)) => true,
            (Self::Agreement(_), Self::Accuracy(_)) => false,
            (one, other) => one.bound() > other.bound(),
        }
    }
}

/// The least quality that is demanded of a variant. The live system, the planner and the simulator use this one rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastQuality {
    /// The least accuracy measured against labels; minus infinity if nothing is demanded.
    pub accuracy: f64,
    /// The least agreement; infinity if only an accuracy suffices, minus infinity if nothing is demanded.
    pub agreement: f64,
}

impl LeastQuality {
    /// Nothing is demanded.
    pub const NONE: Self = Self {
        accuracy: f64::NEG_INFINITY,
        agreement: f64::NEG_INFINITY,
    };

    /// Made from the figures of targets. A least quality without a least agreement demands an accuracy.
    pub fn new(min_quality: Option<f64>, min_agreement: Option<f64>) -> Self {
        match min_quality {
            Some(accuracy) => Self {
                accuracy,
                agreement: min_agreement.unwrap_or(f64::INFINITY),
            },
            None => Self {
                agreement: min_agreement.unwrap_or(f64::NEG_INFINITY),
                ..Self::NONE
            },
        }
    }

    /// Whether a variant of this quality is good enough.
    pub fn is_met_by(&self, quality: Quality) -> bool {
        match quality {
            Quality::Accuracy(bound) => bound >= self.accuracy,
            Quality::Agreement(share) => share >= self.agreement,
        }
    }

    /// How far a quality misses it, as a share of what is demanded; 1 if agreement does not suffice.
    pub fn miss(&self, quality: Quality) -> f64 {
        let (has, least) = match quality {
            Quality::Accuracy(bound) => (bound, self.accuracy),
            Quality::Agreement(share) => (share, self.agreement),
        };
        match least {
            f64::INFINITY => 1.0,
            f64::NEG_INFINITY => 0.0,
            least => ((least - has) / least.abs().max(1e-9)).max(0.0),
        }
    }
}

/// The longest accepted latency target: a day.
pub const MAX_LATENCY_MS: f64 = 86_400_000.0;

/// The class of queries with similar targets. Demand is counted by class. Targets are rounded to the strict side, so a
/// variant that meets those of the class meets those of each of its queries.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct TargetClass {
    /// The latency target is at least two to this power of milliseconds, and less than twice that;
    /// from -10 (about a microsecond and all below) to 26. `None`: no target.
    pub latency_log2_ms: Option<i8>,
    /// The least quality in steps of a hundredth, rounded up. `None`: no target.
    pub min_quality_hundredths: Option<i32>,
    /// The same for the least agreement. `None`: if there is a least quality, no agreement suffices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_agreement_hundredths: Option<i32>,
    /// Which of the variants that meet the targets answers.
    #[serde(default, skip_serializing_if = "Prefer::is_cost")]
    pub prefer: Prefer,
}

/// Latency targets below two to this power of milliseconds belong to one class.
const LEAST_LATENCY_LOG2: i8 = -10;

/// By how much a least quality may exceed its step without counting for the next one, because decimal fractions are not
/// exact in binary.
const STEP_SLACK: f64 = 1e-6;

impl TargetClass {
    /// The class of a query's targets, which are [valid](Targets::validate).
    pub fn of(targets: &Targets) -> Self {
        let steps = |quality: f64| (quality * 100.0 - STEP_SLACK).ceil() as i32;
        Self {
            latency_log2_ms: targets.latency_ms.map(floor_log2),
            min_quality_hundredths: targets.min_quality.map(steps),
            min_agreement_hundredths: targets.min_agreement.map(steps),
            prefer: targets.prefer.unwrap_or_default(),
        }
    }

    /// The strictest latency target of the class, ms. For the class of the shortest targets, half of the value below
    /// which all its targets lie.
    pub fn latency_ms(&self) -> Option<f64> {
        self.latency_log2_ms.map(|log2| 2f64.powi(log2.into()))
    }

    /// The highest least quality of the class.
    pub fn min_quality(&self) -> Option<f64> {
        let hundredths = self.min_quality_hundredths?;
        Some(f64::from(hundredths) / 100.0)
    }

    /// The highest least agreement of the class.
    pub fn min_agreement(&self) -> Option<f64> {
        let hundredths = self.min_agreement_hundredths?;
        Some(f64::from(hundredths) / 100.0)
    }

    /// The quality that suffices for at least one query of the class: `0.01` less than for all.
    pub fn least_quality(&self) -> LeastQuality {
        let loosest = |hundredths: i32| f64::from(hundredths) / 100.0 - 0.01;
        LeastQuality::new(
            self.min_quality_hundredths.map(loosest),
            self.min_agreement_hundredths.map(loosest),
        )
    }
}

/// The exponent of a positive number, as it is stored. It is exact, unlike a logarithm.
fn floor_log2(value: f64) -> i8 {
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    exponent.clamp(LEAST_LATENCY_LOG2.into(), i8::MAX.into()) as i8
}

impl Targets {
    /// The quality that the targets demand, once shares are figures.
    pub fn least_quality(&self) -> LeastQuality {
        LeastQuality::new(self.min_quality, self.min_agreement)
    }

    /// Refuses NaN, infinities, non-positive latencies and costs.
    pub fn validate(&self) -> Result<(), InvalidTarget> {
        let refuse = |name, value, rule| Err(InvalidTarget { name, value, rule });
        if let Some(value) = self.latency_ms
            && !(value > 0.0 && value <= MAX_LATENCY_MS)
        {
            return refuse("latency_ms", value, "a number above 0 and at most 86400000");
        }
        if let Some(value) = self.min_quality
            && !value.is_finite()
        {
            return refuse("min_accuracy", value, "a finite number");
        }
        if let Some(value) = self.min_relative_accuracy
            && !(value > 0.0 && value <= 1.0)
        {
            let name = "min_relative_accuracy";
            return refuse(name, value, "a number above 0 and at most 1");
        }
        if let Some(value) = self.max_cost_per_1k_usd
            && !(value > 0.0 && value.is_finite())
        {
            return refuse("max_cost_per_1k_usd", value, "a finite number above 0");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(latency_ms: Option<f64>, min_quality: Option<f64>) -> TargetClass {
        TargetClass::of(&Targets {
            latency_ms,
            min_quality,
            ..Targets::default()
        })
    }

    #[test]
    fn a_share_asks_for_less_of_proportions_and_of_errors() {
        assert_eq!(relative_quality(0.9, 0.5), 0.45);
        assert_eq!(relative_quality(-2.0, 0.5), -4.0);
        for quality in [-3.0, -0.1, 0.0, 0.7, 1.0] {
            assert_eq!(relative_quality(quality, 1.0), quality);
            assert!(relative_quality(quality, 0.99) <= quality);
        }
    }

    #[test]
    fn a_share_lies_above_nothing_and_up_to_all() {
        let targets = |share| Targets {
            min_relative_accuracy: Some(share),
            ..Targets::default()
        };
        for share in [0.01, 0.99, 1.0] {
            assert_eq!(targets(share).validate(), Ok(()));
        }
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            let refused = targets(share).validate().expect_err("no share");
            assert_eq!(refused.name, "min_relative_accuracy");
        }
    }

    #[test]
    fn agreement_is_never_an_accuracy() {
        let (labelled, agrees) = (Quality::Accuracy(0.9), Quality::Agreement(1.0));
        let accuracy = LeastQuality::new(Some(0.5), None);
        assert!(accuracy.is_met_by(labelled) && !accuracy.is_met_by(agrees));
        assert_eq!((accuracy.miss(labelled), accuracy.miss(agrees)), (0.0, 1.0));
        let share = LeastQuality::new(Some(0.95), Some(0.99));
        assert!(!share.is_met_by(labelled) && share.is_met_by(agrees));
        assert!(!share.is_met_by(Quality::Agreement(0.98)));
        let none = LeastQuality::new(None, None);
        assert!(none.is_met_by(labelled) && none.is_met_by(Quality::Agreement(f64::NEG_INFINITY)));
        assert_eq!((none, none.miss(agrees)), (LeastQuality::NONE, 0.0));
    }

    #[test]
    fn the_share_of_an_error_of_zero_is_all_or_nothing() {
        assert_eq!((share_of(-0.0, -0.0), share_of(-0.1, -0.0)), (1.0, 0.0));
        assert_eq!((share_of(0.9, 0.9), share_of(-0.2, -0.1)), (1.0, 0.5));
    }

    #[test]
    fn no_targets_are_a_class_of_their_own() {
        let none = class(None, None);
        assert_eq!(none, TargetClass::default());
        assert_eq!((none.latency_ms(), none.min_quality()), (None, None));
    }

    #[test]
    fn a_class_begins_at_a_power_of_two_and_at_a_hundredth() {
        for (latency_ms, begins_ms) in [(1.0, 1.0), (1.99, 1.0), (2.0, 2.0), (100.0, 64.0)] {
            assert_eq!(class(Some(latency_ms), None).latency_ms(), Some(begins_ms));
        }
        assert_eq!(class(Some(0.3), None).latency_ms(), Some(0.25));
        assert_eq!(
            class(Some(1e-9), None),
            class(Some(f64::MIN_POSITIVE), None)
        );
        for hundredths in -300..=300 {
            let quality = f64::from(hundredths) / 100.0;
            let found = class(None, Some(quality)).min_quality_hundredths;
            assert_eq!(found, Some(hundredths), "of {quality}");
        }
        let found = class(None, Some(0.921)).min_quality_hundredths;
        assert_eq!(found, Some(93));
    }

    proptest! {
        #[test]
        fn a_share_is_enough_up_to_the_greatest(
            quality in -10.0..10.0f64, of in -10.0..10.0f64, share in 0.01..1.0f64
        ) {
            let greatest = share_of(quality, of);
            prop_assume!((greatest - share).abs() > 1e-9 && quality * of > 0.0);
            prop_assert_eq!(quality >= relative_quality(of, share), share <= greatest);
        }

        #[test]
        fn what_meets_the_class_meets_the_targets(
            latency_ms in 1e-3..MAX_LATENCY_MS, quality in -1e3..1e3f64
        ) {
            let class = class(Some(latency_ms), Some(quality));
            let begins_ms = class.latency_ms().unwrap();
            prop_assert!(begins_ms <= latency_ms && latency_ms < 2.0 * begins_ms);
            let least = class.min_quality().unwrap();
            prop_assert!(least > quality - 2e-8 && least < quality + 0.01 + 1e-9);
        }
    }
}
