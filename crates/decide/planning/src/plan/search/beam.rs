//! Where branch and bound takes too long: at each step the starts of plans that are cheapest for the time that they use.

use super::{NONE, Search, undominated_ways};
use crate::plan::{
    StepPlan,
    walk::{Mark, Pressure},
};

/// Starts of plans that the beam keeps at each step.
const WIDTH: usize = 16;

/// How far above the floors together the beam looks, as a share of them.
const BEYOND: f64 = 1.0;

/// A start of a plan in the beam.
struct Beam {
    mark: Mark,
    start: Vec<StepPlan>,
    price: f64,
    accuracy: f64,
    pressure: Pressure,
}

// === impl Search ===

impl Search<'_> {
    /// Keeps the best starts at each step.
    pub(super) fn beam(&mut self) {
        let mut starts = vec![Beam {
            mark: self.walk.mark(),
            start: Vec::new(),
            price: 0.0,
            accuracy: 1.0,
            pressure: [0; 3],
        }];
        for _ in 0..self.choices.len() {
            let mut next = Vec::new();
            for beam in &starts {
                self.walk.resume(&beam.mark);
                self.widen(beam, &mut next);
            }
            starts = kept(next);
        }
        for beam in starts {
            self.start = beam.start;
            self.complete(beam.price);
        }
    }

    fn widen(&mut self, beam: &Beam, next: &mut Vec<Beam>) {
        let best = self.best.as_ref().map_or(f64::INFINITY, |(cost, ..)| *cost);
        self.limit = best - NONE;
        self.start.clone_from(&beam.start);
        let spent = std::mem::replace(&mut self.most_rows, u64::MAX);
        let left = self.limit - self.rest[0];
        // What is much dearer than the floors is not what the cheapest plan is made of.
        self.limit = self
            .limit
            .min(self.rest[0] + left.min(self.rest[0] * BEYOND));
        let ways = self.tried(beam.price).unwrap_or_default();
        self.most_rows = spent;
        for way in undominated_ways(ways) {
            let newly = self.walk.push(way.trial);
            let start = beam.start.iter().cloned().chain([way.plan]).collect();
            next.push(Beam {
                mark: self.walk.mark(),
                start,
                price: way.price,
                accuracy: way.accuracy,
                pressure: way.pressure,
            });
            self.walk.pop(&newly);
        }
    }
}

/// The cheapest starts of which none is bettered by another.
fn kept(mut starts: Vec<Beam>) -> Vec<Beam> {
    starts.sort_by(|a, b| {
        a.price
            .total_cmp(&b.price)
            .then(a.pressure.cmp(&b.pressure))
    });
    let mut kept: Vec<Beam> = Vec::new();
    for beam in starts {
        let betters = |other: &Beam| {
            let quicker = other
                .pressure
                .iter()
                .zip(&beam.pressure)
                .all(|(other, own)| other <= own);
            quicker && other.accuracy >= beam.accuracy
        };
        if !kept.iter().any(betters) {
            kept.push(beam);
        }
    }
    // Half of the room for the cheapest, and half spread over those that leave more time.
    let spread = kept
        .len()
        .saturating_sub(WIDTH / 2)
        .div_ceil(WIDTH / 2)
        .max(1);
    let taken = kept.into_iter().enumerate();
    let taken = taken.filter(|(at, _)| *at < WIDTH / 2 || (at - WIDTH / 2).is_multiple_of(spread));
    taken.map(|(_, beam)| beam).collect()
}
