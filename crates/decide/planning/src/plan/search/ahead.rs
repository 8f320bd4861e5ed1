//! What lies ahead of a partial plan, by predictions alone.

use super::descent::{RISE, Search};
use crate::whole::NONE;

/// The most predictions to determine whether a partial plan can be continued. If they do not suffice, it is tried.
const MOST_PREDICTIONS: usize = 400;

// === impl Search ===

impl Search<'_> {
    /// The price with a way; `None` if that exceeds the limit.
    pub(super) fn reached(&mut self, step: usize, at: usize, price: f64) -> Option<f64> {
        let price = price + self.ways[step].list[at].price;
        let whole = price + self.rest[step + 1];
        if whole > self.limit {
            self.beyond = self.beyond.min(whole);
            return None;
        }
        Some(price)
    }

    /// Decides a step in predictions. Returns `false`, with nothing decided, if the whole pipeline cannot be accurate
    /// enough or too many queries would miss.
    pub(super) fn decide(&mut self, step: usize, at: usize) -> bool {
        let way = &self.ways[step].list[at];
        if !self.is_accurate_with(step, way.accuracy) {
            return false;
        }
        self.predictions += 1;
        self.walk.spent += self.predictor.rows();
        let most = self.walk.may_miss() * self.stage.times;
        if !self.predictor.predict(step, way.run, &way.waits, most) {
            return false;
        }
        self.accuracy[step] = way.accuracy;
        true
    }

    /// Whether the steps from this one on have a way that is predicted to meet the target.
    pub(super) fn may_go_on(&mut self, step: usize, price: f64) -> bool {
        self.reaches(step, price, self.predictions + MOST_PREDICTIONS)
    }

    fn reaches(&mut self, step: usize, price: f64, until: usize) -> bool {
        if step == self.ways.len() || self.predictions > until || self.walk.is_spent() {
            return true;
        }
        for at in 0..self.ways[step].list.len() {
            let Some(price) = self.reached(step, at, price) else {
                return false;
            };
            if self.decide(step, at) {
                let reaches = self.reaches(step + 1, price, until);
                self.accuracy[step] = self.best_accuracy[step];
                if reaches {
                    return true;
                }
            }
        }
        false
    }

    /// The least price, within the limit, at which the steps from this one on are predicted to meet the target.
    fn cheapest(&mut self, step: usize, price: f64) -> Option<f64> {
        if step == self.ways.len() {
            self.limit = price - NONE;
            return Some(price);
        }
        let mut cheapest = None;
        for at in 0..self.ways[step].list.len() {
            let Some(price) = self
                .reached(step, at, price)
                .filter(|_| !self.walk.is_spent())
            else {
                break;
            };
            if self.decide(step, at) {
                cheapest = self.cheapest(step + 1, price).or(cheapest);
                self.accuracy[step] = self.best_accuracy[step];
            }
        }
        cheapest
    }

    /// The least price, at most `known`, at which the steps from `step` on are predicted to meet the target if those
    /// before take their least time; `None` if that took too long.
    pub(super) fn rest_from(&mut self, step: usize, known: f64) -> Option<f64> {
        let before = self.ways[..step].iter();
        let least: Vec<i16> = before.map(|ways| ways.least_run(&self.predictor)).collect();
        self.predictor.lead(&least);
        let mut limit = self.ways[step].floor() + self.rest[step + 1] + NONE;
        while limit <= known + 2.0 * NONE {
            self.limit = limit;
            self.extend(step);
            let found = self.cheapest(step, 0.0);
            if self.walk.is_spent() {
                return None;
            }
            if found.is_some() || self.beyond == f64::INFINITY {
                return Some(found.unwrap_or(f64::INFINITY));
            }
            limit = (limit * RISE).max(self.beyond + NONE);
        }
        Some(limit)
    }
}
