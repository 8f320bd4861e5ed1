//! Builds the world of a cell: models, devices, sources and the measured span.

use std::sync::Arc;

use sextant_baselines::{Options, Policy};
use sextant_schedule::{Delay, LatencyTable, NEVER, Nanos};

use super::{Arrivals, Cell, Criterion, DeviceType, Group, NetworkSpec, part::Part};
use crate::Setting;
use crate::{
    bound::{clairvoyant_bound_rps, fluid_bound_rps},
    goodput::hopeless,
};
use sextant_simulator::{
    Device, Error, Jitter, Model, Network, Shape, Source, Span,
    profiles::{self, Profile, nanos},
    workload::{ClosedLoop, MixedSource, Spread, Spreading, open_loop},
};

/// A cell ready to run.
#[derive(Debug)]
pub(super) struct PreparedCell {
    setting: Setting,
    pub(super) groups: Vec<Part>,
    /// For each model: its share of the varied rate.
    shares: Vec<f64>,
    pub(super) bound_rps: f64,
    from: Nanos,
    until: Nanos,
    most_missed_share: f64,
}

/// Bounds of the measured time if it is derived from the number of requests, s.
const MEASURED_S: (f64, f64) = (0.5, 600.0);

// === impl PreparedCell ===

impl PreparedCell {
    pub(super) fn new(cell: &Cell) -> Result<Self, Error> {
        let (mut models, mut groups) = (Vec::new(), Vec::new());
        let slowdowns: Vec<f64> = match cell.fleet.as_slice() {
            [] => vec![1.0],
            fleet => fleet.iter().map(|of| of.slowdown).collect(),
        };
        for group in &cell.group {
            let profiles = chosen(group)?;
            let from = models.len() as u32;
            add_models(group, &profiles, &slowdowns, &mut models)?;
            groups.push(Part::new(group, from..models.len() as u32, profiles)?);
        }
        let setting = Setting {
            devices: devices(cell, models.len()),
            prices: cell.fleet.iter().map(|of| of.hour_usd).collect(),
            options: Options {
                delay: cell.network.most(),
                hold: cell.hold,
                frontends: cell.frontends,
                ..Options::default()
            },
            network: cell.network.network(),
            jitter: match cell.jitter_share {
                0.0 => Jitter::None,
                spread => Jitter::Uniform { spread },
            },
            shape: Shape::default(),
            failures: Vec::new(),
            seed: 0,
            histograms: false,
            models,
        };
        Ok(Self::finish(cell, setting, groups))
    }

    fn finish(cell: &Cell, setting: Setting, groups: Vec<Part>) -> Self {
        let shares = shares(&groups, setting.models.len());
        let bound_rps = fluid_bound_rps(&setting, &shares);
        let from = nanos(cell.warm_up_s * 1e3);
        let measured_s = if cell.measured_s > 0.0 {
            cell.measured_s
        } else {
            let requests = cell.requests_per_model as f64 * setting.models.len() as f64;
            (requests / bound_rps).clamp(MEASURED_S.0, MEASURED_S.1)
        };
        Self {
            until: from + nanos(measured_s * 1e3),
            from,
            setting,
            groups,
            shares,
            bound_rps,
            most_missed_share: cell.most_missed_share,
        }
    }

    /// The world's setting for one run.
    pub(super) fn setting(&self, policy: Policy, seed: u64) -> Setting {
        let mut setting = self.setting.clone();
        setting.options.policy = policy;
        setting.seed = seed;
        setting
    }

    /// Keeps only the devices of the first kind.
    pub(super) fn keep_first_kind(&mut self) {
        self.setting.devices.retain(|device| device.kind == 0);
        self.bound_rps = fluid_bound_rps(&self.setting, &self.shares);
    }

    /// What the runs have in common: the world without the policy and the seed.
    pub(super) fn into_setting(self) -> Setting {
        self.setting
    }

    /// Changes the shape of the fleet.
    pub(super) fn set_shape(&mut self, shape: Shape) {
        self.setting.shape = shape;
    }

    /// Changes the target of the first group.
    pub(super) fn set_target(&mut self, target: Nanos) {
        let Some(first) = self.groups.first() else {
            return;
        };
        for at in first.models.clone() {
            self.setting.models[at as usize].target = target;
        }
    }

    /// A source of `rps` requests per second in all, besides the groups with clients or a rate of their own.
    pub(super) fn source(&self, rps: f64, seed: u64) -> Result<Box<dyn Source>, Error> {
        let (mut streams, mut open, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for part in &self.groups {
            let models: Vec<u32> = part.models.clone().collect();
            if part.group.arrivals == Arrivals::Closed {
                let closed = ClosedLoop::new(&models, part.group.clients, 0);
                sources.push((models, Box::new(closed) as Box<dyn Source>));
            } else if part.group.arrivals == Arrivals::Spreading {
                let spread = Spread {
                    rps: part.rps(rps, self.of_all(part)),
                    begin_s: part.group.begin_s,
                    step_s: part.group.step_s,
                };
                // This seed must differ from that of the first open stream.
                let own_seed = !seed ^ u64::from(part.models.start);
                let spreading = Spreading::new(models.clone(), spread, own_seed)?;
                sources.push((models, Box::new(spreading)));
            } else {
                streams.extend(part.streams(rps, self.of_all(part)));
                open.extend(models);
            }
        }
        let open_source = open_loop(&streams, seed)?;
        if sources.is_empty() {
            return Ok(open_source);
        }
        sources.insert(0, (open, open_source));
        Ok(Box::new(MixedSource::new(sources)))
    }

    /// The rate that no scheduler can exceed with the arrivals of `seed`. `None` if the arrivals depend on the answers,
    /// if run times vary, or if not every model's misses count.
    pub(super) fn clairvoyant_bound_rps(
        &self,
        cell: &Cell,
        seed: u64,
    ) -> Result<Option<f64>, Error> {
        let closed = |part: &Part| part.group.arrivals == Arrivals::Closed;
        let exact = self.setting.jitter == Jitter::None && self.bound_rps.is_finite();
        if !exact || self.groups.iter().any(closed) || cell.criterion != Criterion::EachModel {
            return Ok(None);
        }
        let source = |rps| self.source(rps, seed);
        let share = self.most_missed_share;
        clairvoyant_bound_rps(&self.setting, &self.shares, &self.span(), share, source).map(Some)
    }

    /// The share of the varied rate that goes to a group.
    fn of_all(&self, part: &Part) -> f64 {
        let models = part.models.start as usize..part.models.end as usize;
        self.shares[models].iter().sum()
    }

    /// The measured span.
    pub(super) fn span(&self) -> Span {
        Span {
            from: self.from,
            until: self.until,
            most_missed: Vec::new(),
        }
    }

    /// The measured span of a run at `rps`. The run ends as soon as a model has missed too many requests.
    pub(super) fn hopeful_span(&self, rps: f64) -> Span {
        let seconds = (self.until - self.from) as f64 / 1e9;
        let expected: Vec<f64> = self
            .shares
            .iter()
            .map(|share| share * rps * seconds)
            .collect();
        let variation = self
            .groups
            .iter()
            .map(|part| part.gaps().squared_variation());
        let variation = variation.fold(1.0, f64::max);
        Span {
            most_missed: hopeless(&expected, variation, self.most_missed_share),
            ..self.span()
        }
    }
}

fn devices(cell: &Cell, models: usize) -> Vec<Device> {
    let of_type = |(kind, of): (u32, &DeviceType)| vec![Device { kind }; of.devices as usize];
    if !cell.fleet.is_empty() {
        return (0..).zip(&cell.fleet).flat_map(of_type).collect();
    }
    let count = match cell.devices {
        0 => (cell.devices_per_model * models as f64).ceil() as usize,
        count => count as usize,
    };
    vec![Device { kind: 0 }; count]
}

/// The profiles of a group, in the file's order.
fn chosen(group: &Group) -> Result<Vec<Profile>, Error> {
    let all = profiles::load(&group.profile)?;
    for name in &group.models {
        if !all.iter().any(|profile| profile.model == *name) {
            let known: Vec<&str> = all.iter().map(|profile| profile.model.as_str()).collect();
            return Err(Error::unknown("model", name, &known));
        }
    }
    let chosen: Vec<Profile> = all
        .into_iter()
        .filter(|profile| group.models.is_empty() || group.models.contains(&profile.model))
        .filter(|profile| {
            let (alpha, beta) = profile.line();
            let ratio = beta / alpha;
            group.ratio_above.is_none_or(|least| ratio > least)
                && group.ratio_below.is_none_or(|most| ratio < most)
        })
        .collect();
    if chosen.is_empty() {
        let problem = format!("no model of profile `{}` is left", group.profile);
        return Err(Error::Setting(problem));
    }
    match group.family {
        0 => Ok(chosen),
        count => profiles::family(&chosen, count as usize),
    }
}

/// Adds the models of a group with their run times on each kind of device.
fn add_models(
    group: &Group,
    profiles: &[Profile],
    slowdowns: &[f64],
    models: &mut Vec<Model>,
) -> Result<(), Error> {
    for profile in profiles {
        let latency = profile.latency(group.max_rows)?;
        let on_kind = |by: &f64| slowed(&latency, *by).map(Some);
        let latencies: Vec<_> = slowdowns.iter().map(on_kind).collect::<Result<_, _>>()?;
        let target = match group.target_ms {
            Some(ms) if ms > 0.0 => nanos(ms),
            Some(_) => NEVER,
            None => profile.target().ok_or_else(|| {
                let model = &profile.model;
                Error::Setting(format!("model `{model}` has no target: set `target_ms`"))
            })?,
        };
        for copy in 1..=group.copies {
            let name = match group.copies {
                1 => profile.model.clone(),
                _ => format!("{}-{copy}", profile.model),
            };
            models.push(Model {
                name,
                target,
                latency: latencies.clone(),
                priority: group.priority,
                weight: 1.0,
            });
        }
    }
    Ok(())
}

/// The same run times, multiplied by `by`.
fn slowed(latency: &Arc<LatencyTable>, by: f64) -> Result<Arc<LatencyTable>, Error> {
    if by == 1.0 {
        return Ok(Arc::clone(latency));
    }
    let nanos = |rows| (latency.of(rows) as f64 * by).round() as Nanos;
    let table = LatencyTable::new((1..=latency.measured_rows()).map(nanos).collect());
    table
        .map(Arc::new)
        .map_err(|invalid| Error::Setting(format!("`slowdown` is `{by}`: {invalid}")))
}

/// For each model: its share of the varied rate. The share of a group is proportional to its number of models.
fn shares(groups: &[Part], models: usize) -> Vec<f64> {
    let varied: usize = groups
        .iter()
        .filter(|part| part.varies())
        .map(Part::len)
        .sum();
    let mut shares = vec![0.0; models];
    for part in groups.iter().filter(|part| part.varies()) {
        let of_all = part.len() as f64 / varied as f64;
        for (at, share) in part.models.clone().zip(&part.shares) {
            shares[at as usize] = share * of_all;
        }
    }
    shares
}

// === impl NetworkSpec ===

impl NetworkSpec {
    fn least(&self) -> Delay {
        Delay {
            control: nanos(self.control_us / 1e3),
            data_per_row: nanos(self.data_us / 1e3),
            response: nanos(self.response_us / 1e3),
        }
    }

    fn spread(&self) -> Delay {
        Delay {
            control: nanos(self.control_spread_us / 1e3),
            data_per_row: nanos(self.data_spread_us / 1e3),
            response: nanos(self.response_spread_us / 1e3),
        }
    }

    /// The delay for which schedulers make room.
    fn most(&self) -> Delay {
        let (least, spread) = (self.least(), self.spread());
        Delay {
            control: least.control + spread.control,
            data_per_row: least.data_per_row + spread.data_per_row,
            response: least.response + spread.response,
        }
    }

    fn network(&self) -> Network {
        Network {
            base: self.least(),
            spread: self.spread(),
        }
    }
}
