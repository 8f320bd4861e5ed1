//! The load of a sub-cluster.

use super::Model;

/// The load of a sub-cluster.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Requests per second of its models.
    pub rate_rps: f64,
    /// Static memory of its models.
    pub static_bytes: u64,
    /// The largest dynamic memory of any of its models.
    pub dynamic_bytes: u64,
}

/// A load that is changed model by model. It knows the largest dynamic memory without any one model.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) members: Vec<usize>,
    pub(super) load: Load,
    /// The largest dynamic memory without one model that has the largest.
    second_bytes: u64,
}

// === impl Load ===

impl Load {
    /// Memory that each device of the sub-cluster needs.
    pub fn memory_bytes(&self) -> u64 {
        self.static_bytes.saturating_add(self.dynamic_bytes)
    }

    pub(super) fn add(&mut self, model: &Model) {
        self.rate_rps += model.rate_rps;
        self.static_bytes += model.static_bytes;
        self.dynamic_bytes = self.dynamic_bytes.max(model.dynamic_bytes);
    }
}

// === impl Tally ===

impl Tally {
    /// The load after `out` has left and `into` has come.
    pub(super) fn changed(&self, out: Option<&Model>, into: Option<&Model>) -> Load {
        let mut load = self.load;
        if let Some(out) = out {
            load.rate_rps = (load.rate_rps - out.rate_rps).max(0.0);
            load.static_bytes -= out.static_bytes;
            if out.dynamic_bytes == load.dynamic_bytes {
                load.dynamic_bytes = self.second_bytes;
            }
        }
        if let Some(into) = into {
            load.add(into);
        }
        load
    }

    pub(super) fn insert(&mut self, models: &[Model], model: usize) {
        let at = self.members.partition_point(|other| *other < model);
        self.members.insert(at, model);
        self.count(models);
    }

    pub(super) fn remove(&mut self, models: &[Model], model: usize) {
        self.members.retain(|other| *other != model);
        self.count(models);
    }

    /// Computes the sums anew, in a fixed order, so that a load depends only on its models and rounding errors never
    /// accumulate.
    pub(super) fn count(&mut self, models: &[Model]) {
        self.load = Load::default();
        self.second_bytes = 0;
        for model in self.members.iter().map(|model| &models[*model]) {
            let smaller = model.dynamic_bytes.min(self.load.dynamic_bytes);
            self.second_bytes = self.second_bytes.max(smaller);
            self.load.add(model);
        }
    }
}
