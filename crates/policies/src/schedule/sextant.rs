//! Ours. (The reasoning goes here.)

use super::{
    Formed, Options, Rule, View,
    symphony::{Symphony, Window},
};

/// The rule of `sextant`.
#[derive(Debug, Clone, Copy)]
pub struct Sextant {
    base: Symphony,
    hold: f64,
}

impl Sextant {
    /// With the options' share of slack to hold.
    pub fn new(options: &Options) -> Self {
        Self {
            base: Symphony::new(options),
            hold: options.hold.clamp(0.0, 1.0),
        }
    }
}

impl Rule for Sextant {
    type Memory = Window;

    fn form<T>(&mut self, view: &View<'_, T>, window: &mut Window) -> Formed {
        let mut formed = self.base.form(view, window);
        if self.hold < 1.0 && formed.rows > 0 {
            let from = view.queue.arrived(formed.passed);
            let held = formed.ready_at.saturating_sub(from) as f64 * self.hold;
            formed.ready_at = from.saturating_add(held as u64);
        }
        formed
    }

    fn left(window: &mut Window, from: usize, count: usize) {
        window.left(from, count);
    }

    fn inserted(window: &mut Window, at: usize) {
        window.inserted(at);
    }
}
