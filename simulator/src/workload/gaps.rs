//! Gaps between arrivals, in units of their mean.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::Error;

/// The distribution of the gaps of a renewal process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gaps {
    /// Exponential: a Poisson process.
    Exponential,
    /// Gamma with shape `k`, mean `1 / rate` and scale `1 / (k rate)`. The squared coefficient of
    /// variation is `1 / k`, so that a shape below 1 is bursty (Symphony, section 5).
    Gamma {
        /// `k`, above 0.
        shape: f64,
    },
    /// All the same.
    Constant,
}

/// Draws gaps of mean 1.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sampler {
    Exponential,
    Gamma(Gamma),
    Constant,
}

/// Gamma by squeezed rejection from a transformed normal (Marsaglia and Tsang, 2000). A shape below
/// 1 is drawn with the shape increased by 1 and scaled by a power of a uniform number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gamma {
    d: f64,
    c: f64,
    /// `1 / shape` if the shape is below 1.
    power: Option<f64>,
    scale: f64,
}

// === impl Gaps ===

impl Gaps {
    pub(super) fn sampler(self) -> Result<Sampler, Error> {
        match self {
            Self::Exponential => Ok(Sampler::Exponential),
            Self::Constant => Ok(Sampler::Constant),
            Self::Gamma { shape } if shape.is_finite() && shape > 0.0 => {
                Ok(Sampler::Gamma(Gamma::new(shape)))
            }
            Self::Gamma { shape } => Err(Error::Setting(format!(
                "a shape of gaps must be more than zero, not `{shape}`"
            ))),
        }
    }

    /// The squared coefficient of variation.
    pub fn squared_variation(self) -> f64 {
        match self {
            Self::Exponential => 1.0,
            Self::Gamma { shape } => 1.0 / shape,
            Self::Constant => 0.0,
        }
    }
}

// === impl Sampler ===

impl Sampler {
    #[inline]
    pub(super) fn sample(&self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Exponential => exponential(random),
            Self::Gamma(gamma) => gamma.sample(random),
            Self::Constant => 1.0,
        }
    }
}

/// An exponential number of mean 1.
#[inline]
pub fn exponential(random: &mut ChaCha8Rng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

// === impl Gamma ===

impl Gamma {
    fn new(shape: f64) -> Self {
        let drawn = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = drawn - 1.0 / 3.0;
        Self {
            d,
            c: 1.0 / (9.0 * d).sqrt(),
            power: (shape < 1.0).then_some(1.0 / shape),
            scale: 1.0 / shape,
        }
    }

    fn sample(&self, random: &mut ChaCha8Rng) -> f64 {
        let drawn = self.squeeze(random) * self.scale;
        match self.power {
            None => drawn,
            Some(power) => drawn * (1.0 - random.random::<f64>()).powf(power),
        }
    }

    fn squeeze(&self, random: &mut ChaCha8Rng) -> f64 {
        loop {
            let normal = normal(random);
            let cube = 1.0 + self.c * normal;
            if cube <= 0.0 {
                continue;
            }
            let cube = cube * cube * cube;
            let uniform = 1.0 - random.random::<f64>();
            let square = normal * normal;
            let certain = uniform < 1.0 - 0.0331 * square * square;
            if certain || uniform.ln() < 0.5 * square + self.d * (1.0 - cube + cube.ln()) {
                return self.d * cube;
            }
        }
    }
}

/// A standard normal number by the polar method. The second of each pair is dropped, so that a draw
/// depends only on the generator.
pub fn normal(random: &mut ChaCha8Rng) -> f64 {
    loop {
        let x = 2.0 * random.random::<f64>() - 1.0;
        let y = 2.0 * random.random::<f64>() - 1.0;
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}
