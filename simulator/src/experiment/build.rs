//! From a cell to a world: models, devices, sources and the measured span.

use std::ops::Range;

use sextant_policies::schedule::{Delay, NEVER, Nanos, Options, Policy};

use super::{Arrivals, Cell, Group, Kind, NetworkSpec, Popularity, Segment};
use crate::{
    Device, Error, Jitter, Model, Network, Setting, Source, Span,
    azure::{self, Synthetic},
    bound::fluid_bound_rps,
    goodput::hopeless,
    profiles::{self, Profile, nanos},
    workload::{ClosedLoop, Gaps, Mixed, Piece, Rate, Stream, equal, open_loop, zipf},
};

/// A cell ready to run.
#[derive(Debug)]
pub(super) struct Prepared {
    setting: Setting,
    pub(super) groups: Vec<Part>,
    /// By model: its share of the rate that is varied.
    shares: Vec<f64>,
    pub(super) bound_rps: f64,
    from: Nanos,
    until: Nanos,
    most_missed_share: f64,
}

/// A group with the positions of its models.
#[derive(Debug)]
pub(super) struct Part {
    group: Group,
    pub(super) models: Range<u32>,
    /// Profiles before copying.
    pub(super) profiles: Vec<Profile>,
    /// By model: its share of the group's rate.
    shares: Vec<f64>,
    /// By model: its rate over time where that changes, of mean `shares`.
    pattern: Vec<Rate>,
}

/// Bounds on the measured time when it follows from the requests, s.
const MEASURED_S: (f64, f64) = (0.5, 600.0);

/// Says what is wrong with a cell, before anything is run.
pub(super) fn check(kind: Kind, cell: &Cell) -> Result<(), String> {
    let numbers = [
        ("devices_per_model", cell.devices_per_model),
        ("jitter_share", cell.jitter_share),
        ("warm_up_s", cell.warm_up_s),
        ("measured_s", cell.measured_s),
        ("rate_rps", cell.rate_rps),
        ("most_missed_share", cell.most_missed_share),
        ("window_ms", cell.window_ms),
    ];
    let loads = cell.loads.iter().map(|load| ("loads", *load));
    let targets = cell.targets_ms.iter().map(|target| ("targets_ms", *target));
    for (key, value) in numbers.into_iter().chain(loads).chain(targets) {
        if !value.is_finite() || value < 0.0 {
            return Err(format!(
                "`{key}` is `{value}`: it must be finite and not negative"
            ));
        }
    }
    if cell.devices == 0 && cell.devices_per_model <= 0.0 {
        return Err("`devices` is `0`: there must be at least one".to_owned());
    }
    if cell.targets_ms.contains(&0.0) {
        return Err("`targets_ms` holds `0`: a target must be more than zero".to_owned());
    }
    if kind == Kind::Spread {
        return check_spread(cell);
    }
    if cell.measured_s <= 0.0 && cell.requests_per_model == 0 {
        return Err("neither `measured_s` nor `requests_per_model` is set".to_owned());
    }
    cell.group.iter().try_for_each(check_group)
}

fn check_spread(cell: &Cell) -> Result<(), String> {
    for (key, value) in [("window_ms", cell.window_ms), ("rate_rps", cell.rate_rps)] {
        if value <= 0.0 {
            return Err(format!("`{key}` is `{value}`: it must be more than zero"));
        }
    }
    Ok(())
}

fn check_group(group: &Group) -> Result<(), String> {
    let target = group.target_ms.unwrap_or(1.0);
    let numbers = [
        ("target_ms", target),
        ("rate_rps", group.rate_rps),
        ("zipf_exponent", group.zipf_exponent),
        ("shape", group.shape),
    ];
    for (key, value) in numbers {
        if !value.is_finite() || value < 0.0 {
            return Err(format!(
                "`{key}` is `{value}`: it must be finite and not negative"
            ));
        }
    }
    let least = [
        ("shape", group.shape),
        ("minute_s", group.minute_s),
        ("copies", f64::from(group.copies)),
        ("max_rows", f64::from(group.max_rows)),
    ];
    for (key, value) in least {
        if value <= 0.0 {
            return Err(format!("`{key}` is `{value}`: it must be more than zero"));
        }
    }
    if group.arrivals == Arrivals::Closed && group.clients == 0 {
        return Err("`clients` is `0`: a closed loop needs at least one".to_owned());
    }
    for segment in &group.pattern {
        for value in [segment.seconds, segment.from, segment.to] {
            if !value.is_finite() || value < 0.0 {
                return Err(format!(
                    "`pattern` holds `{value}`: it must be finite and not negative"
                ));
            }
        }
    }
    let area = |segment: &Segment| segment.seconds * (segment.from + segment.to);
    if !group.pattern.is_empty() && group.pattern.iter().map(area).sum::<f64>() <= 0.0 {
        return Err("`pattern` has no requests".to_owned());
    }
    if group.profile.is_empty() {
        return Err("a group has no `profile`".to_owned());
    }
    Ok(())
}

// === impl Prepared ===

impl Prepared {
    pub(super) fn new(cell: &Cell) -> Result<Self, Error> {
        let (mut models, mut groups) = (Vec::new(), Vec::new());
        for group in &cell.group {
            let profiles = chosen(group)?;
            let from = models.len() as u32;
            add_models(group, &profiles, &mut models)?;
            groups.push(Part::new(group, from..models.len() as u32, profiles));
        }
        let count = if cell.devices > 0 {
            cell.devices
        } else {
            (cell.devices_per_model * models.len() as f64).ceil() as u32
        };
        let setting = Setting {
            devices: vec![Device { kind: 0 }; count as usize],
            options: Options {
                delay: cell.network.most(),
                frontends: cell.frontends,
                ..Options::default()
            },
            network: cell.network.network(),
            jitter: match cell.jitter_share {
                0.0 => Jitter::None,
                spread => Jitter::Uniform { spread },
            },
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

    /// Changes the target of the first group.
    pub(super) fn set_target(&mut self, target: Nanos) {
        let Some(first) = self.groups.first() else {
            return;
        };
        for at in first.models.clone() {
            self.setting.models[at as usize].target = target;
        }
    }

    /// Requests at `rps` in all, beside the groups with clients or a rate of their own.
    pub(super) fn source(&self, rps: f64, seed: u64) -> Result<Box<dyn Source>, Error> {
        let (mut streams, mut open, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for part in &self.groups {
            let models: Vec<u32> = part.models.clone().collect();
            if part.group.arrivals == Arrivals::Closed {
                let closed = ClosedLoop::new(&models, part.group.clients, 0);
                sources.push((models, Box::new(closed) as Box<dyn Source>));
            } else {
                streams.extend(part.streams(self, rps));
                open.extend(models);
            }
        }
        let open_source = open_loop(&streams, seed)?;
        if sources.is_empty() {
            return Ok(open_source);
        }
        sources.insert(0, (open, open_source));
        Ok(Box::new(Mixed::new(sources)))
    }

    /// The measured span.
    pub(super) fn span(&self) -> Span {
        Span {
            from: self.from,
            until: self.until,
            most_missed: Vec::new(),
        }
    }

    /// The measured span of a run at `rps` that ends as soon as a model has missed too much.
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
    Ok(chosen)
}

fn add_models(group: &Group, profiles: &[Profile], models: &mut Vec<Model>) -> Result<(), Error> {
    for profile in profiles {
        let latency = profile.latency(group.max_rows)?;
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
                latency: vec![Some(latency.clone())],
                priority: group.priority,
                weight: 1.0,
            });
        }
    }
    Ok(())
}

/// By model: its share of the varied rate; groups have as much of it as they have models.
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

// === impl Part ===

impl Part {
    fn new(group: &Group, models: Range<u32>, profiles: Vec<Profile>) -> Self {
        let count = models.len();
        let mut part = Self {
            group: group.clone(),
            models,
            profiles,
            shares: match group.popularity {
                Popularity::Equal => equal(count),
                Popularity::Zipf => zipf(count, group.zipf_exponent),
            },
            pattern: Vec::new(),
        };
        if group.arrivals == Arrivals::Azure {
            part.follow_azure();
        } else if !group.pattern.is_empty() {
            part.follow_pattern();
        }
        part
    }

    fn follow_pattern(&mut self) {
        let piece = |segment: &Segment| Piece {
            seconds: segment.seconds,
            from_rps: segment.from,
            to_rps: segment.to,
        };
        let whole = Rate::Pieces {
            pieces: self.group.pattern.iter().map(piece).collect(),
            repeats: true,
        };
        let mean = whole.mean_rps();
        let scaled = |share: &f64| whole.scaled(share / mean);
        self.pattern = self.shares.iter().map(scaled).collect();
    }

    /// Takes the rates of Azure-like functions, eleven of them to a model as in Clockwork's runs;
    /// the same in every run.
    fn follow_azure(&mut self) {
        let counts = Synthetic::default().counts(11 * self.len(), 1);
        let rates = azure::rates(&counts, self.len(), azure::Mapping::Stripe);
        let total: f64 = rates.iter().map(Rate::mean_rps).sum();
        let minute_s = self.group.minute_s;
        self.pattern = rates
            .iter()
            .map(|rate| rate.scaled(1.0 / total).stretched(minute_s / 60.0))
            .collect();
        self.shares = self.pattern.iter().map(Rate::mean_rps).collect();
    }

    pub(super) fn name(&self) -> &str {
        &self.group.name
    }

    fn len(&self) -> usize {
        self.models.len()
    }

    fn varies(&self) -> bool {
        self.group.arrivals != Arrivals::Closed && self.group.rate_rps <= 0.0
    }

    fn gaps(&self) -> Gaps {
        match self.group.arrivals {
            Arrivals::Gamma => Gaps::Gamma {
                shape: self.group.shape,
            },
            Arrivals::Constant => Gaps::Constant,
            Arrivals::Poisson | Arrivals::Closed | Arrivals::Azure => Gaps::Exponential,
        }
    }

    /// Its streams when the varied groups have `rps` in all.
    fn streams(&self, prepared: &Prepared, rps: f64) -> Vec<Stream> {
        let group_rps = if self.varies() {
            let of_all: f64 = self
                .models
                .clone()
                .map(|at| prepared.shares[at as usize])
                .sum();
            rps * of_all
        } else {
            self.group.rate_rps
        };
        let rate = |at: usize| match self.pattern.get(at) {
            Some(pattern) => pattern.scaled(group_rps),
            None => Rate::Constant(group_rps * self.shares[at]),
        };
        let stream = |(at, model)| Stream {
            model,
            gaps: self.gaps(),
            rate: rate(at),
        };
        self.models.clone().enumerate().map(stream).collect()
    }
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

    /// What schedulers make room for.
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
