//! Model types between the measured ones, for publications that used more types than they printed.

use super::{Curve, Profile};
use crate::Error;

/// Returns `count` profiles: the given ones, ordered by the size of their weights, and additional
/// ones in each gap between two neighbours. If the number does not divide evenly, the first gaps
/// have one more. The profiles in a gap lie on the straight line between its ends at equal
/// distances, in size of the weights, load time, target and run times alike.
///
/// # Errors
/// If there are fewer than two profiles or more than `count`, one has no size, or they are not all
/// measured at the same batch sizes.
pub fn family(profiles: &[Profile], count: usize) -> Result<Vec<Profile>, Error> {
    let mut sorted = profiles.to_vec();
    if sorted.len() < 2 || sorted.len() > count {
        let problem = format!("`{}` profiles cannot be made `{count}`", sorted.len());
        return Err(Error::Setting(problem));
    }
    if let Some(unsized_one) = sorted.iter().find(|profile| profile.weights_mb.is_none()) {
        let problem = format!("profile `{}` has no `weights_mb`", unsized_one.model);
        return Err(Error::Setting(problem));
    }
    let weights = |profile: &Profile| profile.weights_mb.unwrap_or(0.0);
    sorted.sort_by(|a, b| weights(a).total_cmp(&weights(b)));
    let (gaps, missing) = (sorted.len() - 1, count - sorted.len());
    let mut all = Vec::with_capacity(count);
    for (gap, pair) in sorted.windows(2).enumerate() {
        all.push(pair[0].clone());
        let between = missing / gaps + usize::from(gap < missing % gaps);
        for at in 1..=between {
            all.push(mixed(&pair[0], &pair[1], at, between + 1)?);
        }
    }
    all.extend(sorted.pop());
    Ok(all)
}

/// The profile at the fraction `at / of` of the way from `low` to `high`.
fn mixed(low: &Profile, high: &Profile, at: usize, of: usize) -> Result<Profile, Error> {
    let share = at as f64 / of as f64;
    let mix = |low: f64, high: f64| low + share * (high - low);
    let optional = |low: Option<f64>, high: Option<f64>| Some(mix(low?, high?));
    let (Curve::Points(from), Curve::Points(to)) = (&low.curve, &high.curve) else {
        let problem = format!("profile `{}` is a line, not measured sizes", low.model);
        return Err(Error::Setting(problem));
    };
    let sizes = |points: &[(u32, f64)]| points.iter().map(|(rows, _)| *rows).collect::<Vec<u32>>();
    if sizes(from) != sizes(to) {
        let problem = format!(
            "profiles `{}` and `{}` have other batch sizes",
            low.model, high.model
        );
        return Err(Error::Setting(problem));
    }
    let points = from.iter().zip(to);
    let points = points.map(|((rows, low), (_, high))| (*rows, mix(*low, *high)));
    Ok(Profile {
        model: format!("{}+{at}", low.model),
        curve: Curve::Points(points.collect()),
        target_ms: optional(low.target_ms, high.target_ms),
        load_ms: optional(low.load_ms, high.load_ms),
        weights_mb: optional(low.weights_mb, high.weights_mb),
    })
}
