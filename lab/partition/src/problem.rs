//! The checked input of a division.

use super::{Error, Limit, Limits, Load, Model, Partition};

/// Sums of rates and of costs may exceed their limits by this share, because of rounding errors.
const ROUNDING: f64 = 1e-9;

/// Valid models and limits that are not obviously impossible.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    pub(super) models: &'a [Model],
    pub(super) limits: Limits,
    /// Mean rate of the sub-clusters, requests per second.
    pub(super) rate_mean_rps: f64,
    /// Mean static memory of the sub-clusters, bytes.
    pub(super) memory_mean_bytes: f64,
}

/// By how much a partition exceeds each limit, as shares of the limits; 0 where it keeps the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Excess {
    pub(super) rate: f64,
    pub(super) memory: f64,
    pub(super) move_cost: f64,
}

// === impl Problem ===

impl<'a> Problem<'a> {
    /// Checks models and limits.
    ///
    /// # Errors
    /// When a number is invalid, a model fits nowhere, or all models together are too much for all sub-clusters.
    /// Success does not mean that there is a partition.
    pub fn new(models: &'a [Model], limits: Limits) -> Result<Self, Error> {
        check_limits(&limits)?;
        for (at, model) in models.iter().enumerate() {
            check_model(at, model, &limits)?;
        }
        let clusters = limits.clusters as f64;
        let rate_rps: f64 = models.iter().map(|model| model.rate_rps).sum();
        let problem = Self {
            models,
            limits,
            rate_mean_rps: rate_rps / clusters,
            memory_mean_bytes: static_bytes(models) as f64 / clusters,
        };
        problem.check_sums(rate_rps)?;
        Ok(problem)
    }

    /// The models.
    pub fn models(&self) -> &'a [Model] {
        self.models
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The partition with these sub-clusters of the models.
    ///
    /// # Errors
    /// When a limit is broken.
    pub(super) fn partition(&self, clusters: Vec<usize>) -> Result<Partition, Error> {
        let mut loads = vec![Load::default(); self.limits.clusters];
        for (cluster, model) in clusters.iter().zip(self.models) {
            loads[*cluster].add(model);
        }
        let costs = clusters.iter().zip(self.models);
        let move_cost = costs.map(|(to, model)| cost_of(model, *to)).sum();
        if let Some(limit) = self.excess(&loads, move_cost).largest() {
            return Err(Error::NotFound { limit });
        }
        let (rate, memory) = self.deviations(&loads);
        let left = |(to, model): &(&usize, &Model)| model.now.is_some_and(|now| now != **to);
        Ok(Partition {
            rate_deviation_rps: rate * self.rate_mean_rps,
            memory_deviation_bytes: memory * self.memory_mean_bytes,
            objective: rate + self.limits.memory_weight * memory,
            move_cost,
            moved: clusters.iter().zip(self.models).filter(left).count(),
            clusters,
            loads,
        })
    }

    /// The objective.
    pub(super) fn objective(&self, loads: &[Load]) -> f64 {
        let (rate, memory) = self.deviations(loads);
        rate + self.limits.memory_weight * memory
    }

    /// The largest distances of rates and of static memory, as shares of the means.
    fn deviations(&self, loads: &[Load]) -> (f64, f64) {
        let (mut rate, mut memory) = (0.0_f64, 0.0_f64);
        for load in loads {
            rate = rate.max(self.rate_apart(load).abs());
            memory = memory.max(self.memory_apart(load).abs());
        }
        (rate, memory)
    }

    /// By how much these loads exceed the limits.
    pub(super) fn excess(&self, loads: &[Load], move_cost: f64) -> Excess {
        let mut excess = Excess {
            move_cost: over(move_cost, self.limits.move_cost),
            ..Excess::default()
        };
        for load in loads {
            excess.add(self.excess_of(load));
        }
        excess
    }

    /// By how much one load exceeds the limits.
    pub(super) fn excess_of(&self, load: &Load) -> Excess {
        let (need, most) = (load.memory_bytes(), self.limits.memory_bytes);
        let memory_bytes = need.saturating_sub(most);
        Excess {
            rate: over(load.rate_rps, self.limits.rate_rps),
            memory: memory_bytes as f64 / (most as f64).max(1.0),
            move_cost: 0.0,
        }
    }

    /// The distance of a load's rate from the mean, as a share of the mean.
    pub(super) fn rate_apart(&self, load: &Load) -> f64 {
        share(load.rate_rps - self.rate_mean_rps, self.rate_mean_rps)
    }

    /// The distance of a load's static memory from the mean, as a share of the mean.
    pub(super) fn memory_apart(&self, load: &Load) -> f64 {
        let apart = load.static_bytes as f64 - self.memory_mean_bytes;
        share(apart, self.memory_mean_bytes)
    }

    fn check_sums(&self, rate_rps: f64) -> Result<(), Error> {
        let clusters = self.limits.clusters;
        let too_much = |limit, need, most| Err(Error::TooMuch { limit, need, most });
        let most_rps = self.limits.rate_rps * clusters as f64;
        if over(rate_rps, most_rps) > 0.0 || rate_rps.is_infinite() {
            return too_much(Limit::Rate, rate_rps, most_rps);
        }
        let dynamic = self.models.iter().map(|model| model.dynamic_bytes);
        let need = static_bytes(self.models) + u128::from(dynamic.max().unwrap_or(0));
        let most = u128::from(self.limits.memory_bytes) * clusters as u128;
        if need > most || need > u128::from(u64::MAX) {
            let most = most.min(u128::from(u64::MAX));
            return too_much(Limit::Memory, need as f64, most as f64);
        }
        let new = self.models.iter().filter(|model| model.now.is_none());
        let loads: f64 = new.map(|model| model.move_cost).sum();
        match over(loads, self.limits.move_cost) > 0.0 {
            true => too_much(Limit::MoveCost, loads, self.limits.move_cost),
            false => Ok(()),
        }
    }
}

/// The cost of having a model in a sub-cluster: an unload and a load if it is in another one now.
pub(super) fn cost_of(model: &Model, to: usize) -> f64 {
    match model.now {
        Some(now) if now == to => 0.0,
        Some(_) => 2.0 * model.move_cost,
        None => model.move_cost,
    }
}

/// By how much `need` exceeds `most`, as a share of `most`; 0 within rounding errors.
pub(super) fn over(need: f64, most: f64) -> f64 {
    let beyond = need - most;
    match beyond > most * ROUNDING {
        true if most > 0.0 => beyond / most,
        true => beyond,
        false => 0.0,
    }
}

fn share(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

fn static_bytes(models: &[Model]) -> u128 {
    models.iter().map(|of| u128::from(of.static_bytes)).sum()
}

fn check_limits(limits: &Limits) -> Result<(), Error> {
    if limits.clusters == 0 {
        return Err(Error::NoClusters);
    }
    let fields = [
        ("rate_rps", limits.rate_rps, f64::INFINITY),
        ("move_cost", limits.move_cost, f64::INFINITY),
        ("memory_weight", limits.memory_weight, f64::MAX),
    ];
    let is_wrong = |(_, value, most): &&(&str, f64, f64)| !(0.0..=*most).contains(value);
    match fields.iter().find(is_wrong) {
        Some(&(field, value, _)) => Err(Error::Limits { field, value }),
        None => Ok(()),
    }
}

fn check_model(at: usize, model: &Model, limits: &Limits) -> Result<(), Error> {
    let fields = [("rate_rps", model.rate_rps), ("move_cost", model.move_cost)];
    let means_nothing = |(_, value): &&(&str, f64)| !(0.0..=f64::MAX).contains(value);
    if let Some(&(field, value)) = fields.iter().find(means_nothing) {
        return Err(Error::Model {
            model: at,
            field,
            value,
        });
    }
    let clusters = limits.clusters;
    if let Some(cluster) = model.now.filter(|now| *now >= clusters) {
        return Err(Error::NoSuchCluster {
            model: at,
            cluster,
            clusters,
        });
    }
    let bytes = u128::from(model.static_bytes) + u128::from(model.dynamic_bytes);
    let (limit, need, most) = if over(model.rate_rps, limits.rate_rps) > 0.0 {
        (Limit::Rate, model.rate_rps, limits.rate_rps)
    } else if bytes > u128::from(limits.memory_bytes) {
        (Limit::Memory, bytes as f64, limits.memory_bytes as f64)
    } else {
        return Ok(());
    };
    Err(Error::ModelTooLarge {
        model: at,
        limit,
        need,
        most,
    })
}

// === impl Excess ===

impl Excess {
    pub(super) fn add(&mut self, other: Self) {
        self.rate += other.rate;
        self.memory += other.memory;
        self.move_cost += other.move_cost;
    }

    pub(super) fn sum(&self) -> f64 {
        self.rate + self.memory + self.move_cost
    }

    /// The limit that is exceeded most; `None` if all are kept.
    pub(super) fn largest(&self) -> Option<Limit> {
        let each = [
            (self.rate, Limit::Rate),
            (self.memory, Limit::Memory),
            (self.move_cost, Limit::MoveCost),
        ];
        let exceeded = each.into_iter().filter(|(by, _)| *by > 0.0);
        let largest = exceeded.max_by(|one, other| one.0.total_cmp(&other.0));
        largest.map(|(_, limit)| limit)
    }
}
