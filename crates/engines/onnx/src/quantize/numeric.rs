//! Scales, zero points and rounding.

/// How weights become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// One scale for each output channel instead of one for the whole tensor.
    pub per_channel: bool,
    /// Only -64..=64, so that pairs of products cannot overflow 16 bits.
    pub reduced: bool,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            per_channel: true,
            reduced: true,
        }
    }
}

impl Weights {
    fn largest(self) -> f32 {
        if self.reduced { 64.0 } else { 127.0 }
    }
}

/// A weight tensor seen as `[outer, channels, inner]`: the layout of scales along any axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Channels {
    pub(super) count: usize,
    pub(super) inner: usize,
}

impl Channels {
    /// The channels along `axis` of `dims`, or one channel for the whole tensor.
    pub(super) fn new(dims: &[usize], axis: Option<usize>) -> Self {
        let whole = Self {
            count: 1,
            inner: dims.iter().product(),
        };
        axis.and_then(|axis| {
            let inner = dims.get(axis + 1..)?.iter().product();
            let count = *dims.get(axis)?;
            Some(Self { count, inner })
        })
        .unwrap_or(whole)
    }

    /// Runs of `values` that belong to one channel, with its index.
    fn runs(self, values: &[f32]) -> impl Iterator<Item = (usize, &[f32])> {
        let inner = self.inner.max(1);
        values
            .chunks(inner * self.count.max(1))
            .flat_map(move |block| block.chunks(inner).enumerate())
    }
}

/// Symmetric scales of `values`, one per channel.
pub(super) fn weight_scales(values: &[f32], channels: Channels, weights: Weights) -> Vec<f32> {
    let mut largest = vec![0f32; channels.count];
    for (channel, run) in channels.runs(values) {
        let run = run.iter().fold(0f32, |largest, it| largest.max(it.abs()));
        largest[channel] = largest[channel].max(run);
    }
    largest
        .into_iter()
        .map(|largest| usable(f64::from(largest) / f64::from(weights.largest())))
        .collect()
}

/// Rounds `values` to signed bytes, ties to even.
pub(super) fn quantize_weights(values: &[f32], channels: Channels, scales: &[f32]) -> Vec<i8> {
    let mut bytes = Vec::with_capacity(values.len());
    for (channel, run) in channels.runs(values) {
        let scale = scales[channel];
        bytes.extend(run.iter().map(|value| {
            let scaled = (value / scale).round_ties_even();
            scaled.clamp(-127.0, 127.0) as i8
        }));
    }
    bytes
}

/// Rounds a bias to 32-bit integers at the given scales (one per element, or one for all).
pub(super) fn quantize_bias(values: &[f32], scales: &[f32]) -> Vec<i32> {
    let scale = |index: usize| f64::from(scales[index % scales.len().max(1)]);
    let integer = |(index, value): (usize, &f32)| {
        let scaled = f64::from(*value) / scale(index);
        scaled.round_ties_even() as i32
    };
    values.iter().enumerate().map(integer).collect()
}

/// Scale and zero point of unsigned bytes that cover `low..=high` and hold zero exactly.
pub(super) fn activation_scale(low: f32, high: f32) -> (f32, u8) {
    let (low, high) = (f64::from(low.min(0.0)), f64::from(high.max(0.0)));
    let scale = (high - low) / 255.0;
    if scale < f64::from(f32::MIN_POSITIVE) {
        return (1.0, 0);
    }
    let zero_point = (-low / scale).round_ties_even().clamp(0.0, 255.0);
    (scale as f32, zero_point as u8)
}

/// The scale, or 1 if all values are zeros.
fn usable(scale: f64) -> f32 {
    if scale < f64::from(f32::MIN_POSITIVE) {
        1.0
    } else {
        scale as f32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zero_is_exact_and_ranges_are_covered() {
        assert_eq!(activation_scale(0.0, 0.0), (1.0, 0));
        assert_eq!(activation_scale(2.0, 255.0), (1.0, 0));
        assert_eq!(activation_scale(-255.0, -3.0), (1.0, 255));
        assert_eq!(activation_scale(-1.0, 1.0).1, 128);
    }

    #[test]
    fn channels_follow_any_axis() {
        let values = [1.0, -2.0, 3.0, -4.0];
        let rows = Channels::new(&[2, 2], Some(0));
        let columns = Channels::new(&[2, 2], Some(1));
        let scales = |channels| weight_scales(&values, channels, Weights::default());
        assert_eq!(scales(rows), [2.0 / 64.0, 4.0 / 64.0]);
        assert_eq!(scales(columns), [3.0 / 64.0, 4.0 / 64.0]);
        assert_eq!(scales(Channels::new(&[2, 2], None)), [4.0 / 64.0]);
    }

    proptest! {
        #[test]
        fn weights_come_back_within_half_a_step(
            values in prop::collection::vec(-1e3f32..1e3, 1..64),
            reduced in any::<bool>(),
        ) {
            let channels = Channels::new(&[values.len()], None);
            let weights = Weights { per_channel: false, reduced };
            let scales = weight_scales(&values, channels, weights);
            let bytes = quantize_weights(&values, channels, &scales);
            for (value, byte) in values.iter().zip(bytes) {
                prop_assert!((value - f32::from(byte) * scales[0]).abs() <= scales[0] * 0.501);
                prop_assert!(f32::from(byte).abs() <= weights.largest());
            }
        }

        #[test]
        fn activations_inside_the_range_come_back_within_a_step(
            low in -1e3f32..1e3, width in 0f32..1e3, at in 0f32..1.0,
        ) {
            let (scale, zero_point) = activation_scale(low, low + width);
            let value = low + width * at;
            let byte = (value / scale).round_ties_even() + f32::from(zero_point);
            let back = (byte.clamp(0.0, 255.0) - f32::from(zero_point)) * scale;
            prop_assert!((value - back).abs() <= scale * 1.01);
        }
    }
}
