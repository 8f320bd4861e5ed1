//! Accuracy relative to the file as it was uploaded: the quality for a query that names a model and asks for none, and
//! the quality for a query that asks for a share.
//!
//! A query that names a model means the model that was trained. A cheaper variant may answer it if the variant's
//! accuracy lies within the measured interval of the uploaded file's accuracy, which is all that the validation set can
//! distinguish.
//!
//! A share is a ratio of the unfavourable ends of the two intervals. Both were measured on the same records, so both
//! contain the same uncertainty.

use std::sync::Arc;

use sextant_types::{
    Accuracy, LeastQuality, ModelId, Precision, Quality, Route, Targets, relative_quality,
    uploaded_quality,
};

use super::{IndexedVariant, Scope, Snapshot};
use crate::input_size::InputSize;

/// Least qualities are counted in hundredths in the demand, rounded to the strict side.
const STEPS: f64 = 100.0;

/// The least quality of a model's usual answers; `None` if no variant computes as the file does.
pub(super) fn usual_quality(members: &[Arc<IndexedVariant>]) -> Option<Quality> {
    let measured: Vec<_> = members.iter().map(measured).collect();
    let least = uploaded_quality(&measured)?;
    let usual = members
        .iter()
        .filter(|it| it.variant.accuracy.quality() >= least);
    let lowest = usual.map(|known| known.quality).reduce(lesser)?;
    let step = |quality: f64| (quality * STEPS).floor() / STEPS;
    Some(match lowest {
        Quality::Accuracy(bound) => Quality::Accuracy(step(bound)),
        Quality::Agreement(share) => Quality::Agreement(step(share)),
    })
}

fn measured(known: &Arc<IndexedVariant>) -> (Precision, &Accuracy) {
    (known.variant.spec.precision, &known.variant.accuracy)
}

/// The lesser quality of two variants of one model. If they are of different kinds, agreement.
fn lesser(one: Quality, other: Quality) -> Quality {
    match (one, other) {
        (Quality::Accuracy(a), Quality::Accuracy(b)) => Quality::Accuracy(a.min(b)),
        (Quality::Agreement(a), Quality::Agreement(b)) => Quality::Agreement(a.min(b)),
        (agreement @ Quality::Agreement(_), _) | (_, agreement) => agreement,
    }
}

/// The quality of the most accurate file among `members` as it was uploaded. If none of them computes as its file does,
/// that of the most accurate variant. Only variants whose accuracy is known count.
pub(super) fn reference(members: &[Arc<IndexedVariant>]) -> Option<f64> {
    let measured = members.iter().map(measured);
    let measured: Vec<_> = measured.filter(|(_, it)| it.kind.is_accuracy()).collect();
    uploaded_quality(&measured).or_else(|| {
        let bounds = measured.iter().map(|(_, it)| it.quality_bound());
        bounds.reduce(f64::max)
    })
}

impl Snapshot {
    /// The targets with figures in place of shares. A query that names a model and asks for no accuracy gets the
    /// accuracy of the model as it was uploaded. A share that an offline job asks for is converted in the same way.
    pub fn in_figures(&self, route: &Route, targets: Targets, extent: InputSize) -> Targets {
        let scope = match route {
            Route::Application(id) => self.application(id),
            Route::Model(id) => self.model(id),
            Route::Variant(id) => self
                .variant(id)
                .and_then(|known| self.model_exactly(&known.variant.model)),
        };
        let Some(scope) = scope else {
            return targets;
        };
        scope.in_figures(matches!(route, Route::Model(_)), (targets, extent))
    }

    /// The same for a query that another version answers in place of the current one. `is_named` says whether the query
    /// names the model.
    pub fn in_figures_of(
        &self,
        model: &ModelId,
        is_named: bool,
        (targets, extent): (Targets, InputSize),
    ) -> Targets {
        match self.model_exactly(model) {
            Some(scope) => scope.in_figures(is_named, (targets, extent)),
            None => targets,
        }
    }
}

impl Scope {
    fn in_figures(&self, is_named: bool, (targets, extent): (Targets, InputSize)) -> Targets {
        match targets.min_relative_accuracy {
            Some(share) => self.share_in_figures(&targets, share, extent),
            None if is_named => self.usual_targets(targets, extent),
            None => targets,
        }
    }

    /// The targets of a query that asks for this share of the uploaded file's quality. For agreement it is a share of
    /// the quality of each model's own file. If the query asks for a least accuracy as well, agreement does not satisfy
    /// it.
    fn share_in_figures(&self, targets: &Targets, share: f64, extent: InputSize) -> Targets {
        let asked = self.uploaded_quality.map(|of| relative_quality(of, share));
        let asked = match (asked, targets.min_quality) {
            (Some(asked), Some(least)) => Some(asked.max(least)),
            (asked, least) => asked.or(least),
        };
        let entries = self.index_at(extent).entries();
        let labelled = entries.iter().filter(|entry| !entry.agreement);
        let bounds = labelled.map(|entry| entry.quality_bound);
        Targets {
            min_quality: asked.map(|asked| in_steps(asked, bounds)),
            min_agreement: targets.min_quality.is_none().then_some(share),
            min_relative_accuracy: None,
            ..*targets
        }
    }

    /// The targets of a query that asks for no accuracy. Its own targets take precedence: if no variant of the usual
    /// accuracy could ever meet them, they remain unchanged.
    pub fn usual_targets(&self, targets: Targets, extent: InputSize) -> Targets {
        let asks = targets.min_quality.is_some() || targets.min_agreement.is_some();
        let Some(usual) = self.usual_quality.filter(|_| !asks) else {
            return targets;
        };
        let (min_quality, min_agreement) = match usual {
            Quality::Accuracy(bound) => (Some(bound), None),
            Quality::Agreement(share) => (None, Some(share)),
        };
        let least = LeastQuality::new(min_quality, min_agreement);
        let latency_ms = targets.latency_ms.unwrap_or(f64::INFINITY);
        let most_usd = targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY);
        let entries = self.index_at(extent).entries();
        let is_met = entries.iter().any(|entry| {
            least.is_met_by(entry.quality())
                && entry.latency_ms <= latency_ms
                && entry.cost_per_1k_usd <= most_usd
        });
        match is_met {
            true => Targets {
                min_quality,
                min_agreement,
                ..targets
            },
            false => targets,
        }
    }
}

/// A least quality that the same values of `bounds` reach as reach `least`. It is a whole step if there is one, because
/// the demand is counted by steps, rounded to the strict side.
fn in_steps(least: f64, bounds: impl Iterator<Item = f64>) -> f64 {
    let (mut below, mut above) = (f64::NEG_INFINITY, f64::INFINITY);
    for bound in bounds {
        match bound < least {
            true => below = below.max(bound),
            false => above = above.min(bound),
        }
    }
    let steps = [
        (least * STEPS).ceil() / STEPS,
        (least * STEPS).floor() / STEPS,
    ];
    let same = |step: &f64| below < *step && *step <= above && above.is_finite();
    steps.into_iter().find(same).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::in_steps;

    #[test]
    fn a_least_quality_comes_to_a_step_that_tells_the_same_apart() {
        let bounds = [0.911, 0.956, 0.9744];
        let steps = |least| in_steps(least, bounds.into_iter());
        assert_eq!(steps(0.9647), 0.97);
        // First only the step below separates the same values, then neither step does.
        assert_eq!(steps(0.9732), 0.97);
        assert_eq!(in_steps(0.9743, [0.9742, 0.9744].into_iter()), 0.9743);
        // Nothing reaches it, so it remains unchanged.
        assert_eq!(steps(0.98), 0.98);
        assert_eq!(in_steps(-0.013, [-0.02, -0.012].into_iter()), -0.013);
        assert_eq!(in_steps(-0.013, [-0.2, -0.01].into_iter()), -0.01);
    }
}
