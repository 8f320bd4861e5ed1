//! Concurrent queries, by class: those that came and have no answer yet.

use sextant_schedule::Nanos;

use super::replicas::Traffic;

/// Counts concurrent queries; see the module.
#[derive(Debug)]
pub(super) struct TrafficMeter {
    classes: Vec<Counter>,
    /// When it was last read.
    read: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    arrived: u64,
    inside: u64,
    /// Queries in batches that were sent to devices.
    sent: u64,
    /// The integral of concurrent queries over time since the last reading, ns, until `until`.
    area: f64,
    until: Nanos,
}

// === impl TrafficMeter ===

impl TrafficMeter {
    pub(super) fn new(classes: usize) -> Self {
        Self {
            classes: vec![Counter::default(); classes],
            read: 0,
        }
    }

    /// A query came.
    pub(super) fn on_arrival(&mut self, now: Nanos, class: u32) {
        let of = self.at(now, class);
        of.arrived += 1;
        of.inside += 1;
    }

    /// A query was answered or refused.
    pub(super) fn on_end(&mut self, now: Nanos, class: u32) {
        self.at(now, class).inside -= 1;
    }

    /// A query is in a batch that was sent to a device (`sent`), or that has left it.
    pub(super) fn on_batch(&mut self, class: u32, sent: bool) {
        let of = &mut self.classes[class as usize];
        match sent {
            true => of.sent += 1,
            false => of.sent -= 1,
        }
    }

    /// The traffic since the last reading, by class.
    pub(super) fn read(&mut self, now: Nanos) -> Vec<Traffic> {
        let passed = (now - self.read).max(1) as f64;
        self.read = now;
        let classes = 0..self.classes.len() as u32;
        let read = classes.map(|class| {
            let of = self.at(now, class);
            let traffic = Traffic {
                arrived: of.arrived as f64,
                inside: of.inside,
                waiting: of.inside.saturating_sub(of.sent),
                mean_inside: of.area / passed,
            };
            (of.arrived, of.area) = (0, 0.0);
            traffic
        });
        read.collect()
    }

    fn at(&mut self, now: Nanos, class: u32) -> &mut Counter {
        let of = &mut self.classes[class as usize];
        of.area += of.inside as f64 * (now - of.until) as f64;
        of.until = now;
        of
    }
}
