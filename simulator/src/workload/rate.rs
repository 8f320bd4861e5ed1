//! Rates that change over time.

use std::sync::Arc;

use crate::Error;

/// Requests per second over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    /// The same at all times.
    Constant(f64),
    /// One piece after the other.
    Pieces {
        /// The pieces in order.
        pieces: Arc<[Piece]>,
        /// Whether the first follows the last; otherwise nothing comes after the last.
        repeats: bool,
    },
}

/// A rate over some time, which changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// The length, s.
    pub seconds: f64,
    /// Requests per second at its beginning.
    pub from_rps: f64,
    /// Requests per second at its end.
    pub to_rps: f64,
}

/// A position on a rate, from which requests are counted.
///
/// Gaps are drawn for a rate of 1 and stretched: the next request comes when the area under the
/// rate has grown by the gap. This keeps the rest of a gap across pieces, and is exact for Poisson
/// processes.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    rate: Rate,
    /// Now, ns.
    at_ns: f64,
    piece: usize,
    /// Since the piece began, s.
    within_s: f64,
}

// === impl Rate ===

impl Rate {
    /// The same rate times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Constant(rps) => Self::Constant(rps * factor),
            Self::Pieces { pieces, repeats } => Self::Pieces {
                pieces: pieces.iter().map(|piece| piece.scaled(factor)).collect(),
                repeats: *repeats,
            },
        }
    }

    /// The same rates, each `factor` times as long.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        match self {
            Self::Constant(rps) => Self::Constant(*rps),
            Self::Pieces { pieces, repeats } => Self::Pieces {
                pieces: pieces
                    .iter()
                    .map(|piece| Piece {
                        seconds: piece.seconds * factor,
                        ..*piece
                    })
                    .collect(),
                repeats: *repeats,
            },
        }
    }

    /// The mean over all pieces, requests per second.
    pub fn mean_rps(&self) -> f64 {
        match self {
            Self::Constant(rps) => *rps,
            Self::Pieces { pieces, .. } => {
                let seconds: f64 = pieces.iter().map(|piece| piece.seconds).sum();
                let area: f64 = pieces.iter().map(Piece::area).sum();
                if seconds > 0.0 { area / seconds } else { 0.0 }
            }
        }
    }

    /// Requests per second this many seconds after the beginning.
    pub fn at(&self, at_s: f64) -> f64 {
        let (pieces, repeats) = match self {
            Self::Constant(rps) => return *rps,
            Self::Pieces { pieces, repeats } => (pieces, *repeats),
        };
        let whole: f64 = pieces.iter().map(|piece| piece.seconds).sum();
        let mut left_s = match repeats && whole > 0.0 {
            true => at_s.max(0.0) % whole,
            false => at_s.max(0.0),
        };
        for piece in pieces.iter() {
            if left_s < piece.seconds {
                return piece.rate_at(left_s);
            }
            left_s -= piece.seconds;
        }
        0.0
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |value: f64| !value.is_finite() || value < 0.0;
        let bad = match self {
            Self::Constant(rps) => invalid(*rps).then_some(*rps),
            Self::Pieces { pieces, .. } => pieces
                .iter()
                .flat_map(|piece| [piece.seconds, piece.from_rps, piece.to_rps])
                .find(|value| invalid(*value)),
        };
        match bad {
            None => Ok(()),
            Some(value) => Err(Error::Setting(format!(
                "a rate and its length must be finite and not negative, not `{value}`"
            ))),
        }
    }
}

// === impl Piece ===

impl Piece {
    /// A constant rate.
    pub fn flat(seconds: f64, rps: f64) -> Self {
        Self {
            seconds,
            from_rps: rps,
            to_rps: rps,
        }
    }

    fn scaled(&self, factor: f64) -> Self {
        Self {
            seconds: self.seconds,
            from_rps: self.from_rps * factor,
            to_rps: self.to_rps * factor,
        }
    }

    /// The expected number of requests.
    fn area(&self) -> f64 {
        self.seconds * (self.from_rps + self.to_rps) / 2.0
    }

    fn rate_at(&self, within_s: f64) -> f64 {
        if self.seconds <= 0.0 {
            return self.to_rps;
        }
        self.from_rps + (self.to_rps - self.from_rps) * within_s / self.seconds
    }

    /// Seconds from `within_s` until `area` more requests have come, or the area that is missing at
    /// the end of the piece.
    fn advance(&self, within_s: f64, area: f64) -> Result<f64, f64> {
        let rate = self.rate_at(within_s);
        let left_s = self.seconds - within_s;
        let left = left_s * (rate + self.to_rps) / 2.0;
        if left < area || left_s <= 0.0 || left <= 0.0 {
            return Err(area - left.max(0.0));
        }
        let slope = (self.to_rps - self.from_rps) / self.seconds;
        if slope.abs() * left_s <= 1e-9 * rate {
            return Ok(area / rate);
        }
        // Solves rate * t + slope / 2 * t^2 = area for the root that stays exact when the slope is
        // small.
        let root = (rate * rate + 2.0 * slope * area).max(0.0).sqrt();
        Ok((2.0 * area / (rate + root)).min(left_s))
    }
}

// === impl Cursor ===

impl Cursor {
    pub(super) fn new(rate: &Rate) -> Result<Self, Error> {
        rate.check()?;
        Ok(Self {
            rate: rate.clone(),
            at_ns: 0.0,
            piece: 0,
            within_s: 0.0,
        })
    }

    /// When `gap` more requests have come, ns; `None` if they never come.
    #[inline]
    pub(super) fn advance(&mut self, gap: f64) -> Option<f64> {
        match &self.rate {
            Rate::Constant(rps) if *rps > 0.0 => {
                self.at_ns += gap * 1e9 / rps;
                Some(self.at_ns)
            }
            Rate::Constant(_) => None,
            Rate::Pieces { .. } => self.advance_pieces(gap),
        }
    }

    fn advance_pieces(&mut self, mut gap: f64) -> Option<f64> {
        let Rate::Pieces { pieces, repeats } = &self.rate else {
            return None;
        };
        let mut empty = 0;
        while empty <= pieces.len() {
            if self.piece == pieces.len() {
                if !*repeats {
                    return None;
                }
                self.piece = 0;
            }
            let piece = pieces.get(self.piece)?;
            match piece.advance(self.within_s, gap) {
                Ok(seconds) => {
                    self.within_s += seconds;
                    self.at_ns += seconds * 1e9;
                    return Some(self.at_ns);
                }
                Err(left) => {
                    empty = if left < gap { 0 } else { empty + 1 };
                    gap = left;
                    self.at_ns += (piece.seconds - self.within_s) * 1e9;
                    self.within_s = 0.0;
                    self.piece += 1;
                }
            }
        }
        None
    }
}
