//! Gamma arrivals whose rate changes over time.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::Nanos;

/// A rate that changes in a straight line, for so long.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    pub seconds: f64,
    pub from: f64,
    pub to: f64,
}

/// Arrivals at a constant rate. `variation` is the squared coefficient of variation of the gaps: their shape is its
/// inverse.
pub fn constant(rate: f64, variation: f64, seconds: f64, seed: u64) -> Vec<Nanos> {
    let (from, to) = (rate, rate);
    arrivals(&[Piece { seconds, from, to }], variation, seed)
}

/// Arrivals at rates piece after piece.
pub fn arrivals(pieces: &[Piece], variation: f64, seed: u64) -> Vec<Nanos> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut arrivals, mut begin) = (Vec::new(), 0.0);
    for piece in pieces {
        let mut at = 0.0;
        loop {
            let rate = piece.from + (piece.to - piece.from) * at / piece.seconds;
            at += gamma(1.0 / variation, &mut random) * variation / rate;
            if at >= piece.seconds {
                break;
            }
            arrivals.push(((begin + at) * 1e9) as Nanos);
        }
        begin += piece.seconds;
    }
    arrivals
}

/// Marsaglia and Tsang's squeeze; a shape below 1 is drawn one higher and scaled.
fn gamma(shape: f64, random: &mut ChaCha8Rng) -> f64 {
    let drawn = if shape < 1.0 { shape + 1.0 } else { shape };
    let d = drawn - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    let value = loop {
        let z = normal(random);
        let cube = (1.0 + c * z).powi(3);
        let uniform = 1.0 - random.random::<f64>();
        if cube > 0.0 && uniform.ln() < 0.5 * z * z + d * (1.0 - cube + cube.ln()) {
            break d * cube;
        }
    };
    match shape < 1.0 {
        true => value * (1.0 - random.random::<f64>()).powf(1.0 / shape),
        false => value,
    }
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}
