//! What the planner sees of the store, as numbers: needs, variants that meet them, and types of devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sextant_metadata::{DeviceTypes, Instance, InstanceState, View, Worker};
use sextant_scaling as scaling;
use sextant_scaling::{
    Choice, Device, Footprint, Need, PlannerInput, Policy, Problem, ReservedCapacity,
    fleet::Measurement, rate_for_class, tenants::Tenants,
};
use sextant_schedule::Nanos;
use sextant_selection::Readiness;
use sextant_types::{
    Amounts, ApplicationId, DeviceType, DeviceTypeName, Prefer, Profile, Quality, Slowdowns, Stage,
    Surroundings, Variant, VariantId, WorkerId,
    index::{KindIx, VariantIx},
    uploaded_qualities,
};

use crate::{
    Forecast, Interner,
    feasible::{Terms, could_answer},
    pipelines::{EligibleVariant, Plans, Staff},
    tenants::Set,
};

/// The settings of the autoscaler on which the picture depends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The policy that plans.
    pub policy: Policy,
    /// Whether a worker is kept even for the first query of an application that nobody has asked yet.
    pub serves_silent: bool,
    /// The most that all workers together may cost, US dollars an hour.
    pub budget_per_hour_usd: Option<f64>,
    /// The factor by which a variant is assumed to run longer on a type of device than on the one where it was
    /// measured.
    pub estimate_factor: f64,
    /// Whether a plan counts what surrounds the engines on a worker. It is false if devices are simulated, because
    /// those do nothing else.
    pub counts_surroundings: bool,
    /// The time that messages add to a query on its way to a worker and back, ns.
    pub round_trip: Nanos,
    /// The fewest and the most workers of each type that a provider starts and ends. The number of workers of other
    /// types is fixed.
    pub pools: BTreeMap<DeviceTypeName, (u32, u32)>,
}

/// Workers of one type.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The name of the type.
    pub name: DeviceTypeName,
    /// Its number.
    pub key: u32,
    /// The facts of the type.
    pub facts: Arc<DeviceType>,
    /// The workers of the type that are up and stay.
    pub up: u32,
    /// The fewest workers that there may be.
    pub least: u32,
    /// The most workers that there may be.
    pub most: u32,
    /// Whether a provider starts and ends the workers.
    pub managed: bool,
    /// What the workers report.
    pub measured: Measurement,
    /// What surrounds the engines on one of the workers; `None` if it is not known.
    pub surroundings: Option<Surroundings>,
}

/// The whole picture as numbers. Positions in the lists are those of the problem, and variants have the numbers of
/// their interner.
pub struct Picture {
    /// The forecast demand.
    pub outlooks: Vec<Forecast>,
    /// Types of devices.
    pub kinds: Vec<Kind>,
    /// The published variants.
    pub variants: BTreeMap<VariantIx, Arc<Variant>>,
    /// The planner's problem.
    pub problem: Problem,
    /// By choice: 0 if no choice is preferred to it for its need, then 1 and so on.
    pub preferences: Vec<u32>,
    /// By choice: the memory of its variant.
    footprints: Vec<Footprint>,
    /// By choice: the quality of its variant, and the time of a lone query there, ms.
    merits: Vec<(Quality, f64)>,
    /// The applications that have settings of their own, and which needs belong to which application.
    pub set: Set,
    tenants: Tenants,
    /// The variants that could run the steps of pipelines, if there are any.
    pub(crate) able: Vec<EligibleVariant>,
    /// What runs the steps according to the plans of pipelines.
    pub staff: Vec<Staff>,
    staffed: ReservedCapacity,
    instances: Vec<scaling::Instance>,
}

// === impl Picture ===

impl Picture {
    /// `known` has the facts of types of which no worker is up.
    pub fn new(
        view: &View,
        mut outlooks: Vec<Forecast>,
        known: &BTreeMap<DeviceTypeName, Arc<DeviceType>>,
        (options, interner): (&Options, &mut Interner),
    ) -> Self {
        let set = Set::of(view);
        set.add_kept(&mut outlooks);
        if options.serves_silent {
            add_silent(view, &mut outlooks);
        }
        let kinds = kinds(view, known, (options, interner));
        let devices = kinds.iter().map(|kind| Device {
            price_per_hour_usd: kind.facts.price_per_hour_usd,
            now: kind.up,
            least: kind.least,
            most: kind.most,
            slots: kind.facts.slots.max(1).into(),
            start_s: kind.facts.start_ms as f64 / 1e3,
        });
        let variants = view.variants.values();
        let current = variants.filter(|it| it.release.stage == Stage::Current);
        let variants = current.map(|of| (interner.ordinal(&of.id), Arc::clone(of)));
        let variants: BTreeMap<VariantIx, Arc<Variant>> = variants.collect();
        let mut picture = Self {
            problem: Problem {
                needs: outlooks
                    .iter()
                    .map(|forecast| Need {
                        rps: forecast.of.rps,
                        weight: 1.0,
                    })
                    .collect(),
                choices: Vec::new(),
                devices: devices.collect(),
                budget_per_hour_usd: options.budget_per_hour_usd,
            },
            tenants: set.tenants(&outlooks),
            set,
            outlooks,
            kinds,
            variants,
            footprints: Vec::new(),
            preferences: Vec::new(),
            merits: Vec::new(),
            able: Vec::new(),
            staff: Vec::new(),
            staffed: ReservedCapacity::default(),
            instances: Vec::new(),
        };
        picture.add_choices(view, (options, interner));
        picture.instances = loaded(view, &picture.kinds, interner);
        picture.preferences = picture.preferences();
        picture
    }

    /// The planner's input.
    pub fn input(&self) -> PlannerInput {
        let kinds = self.kinds.iter().map(|kind| scaling::Kind {
            key: kind.key,
            up: kind.up,
            memory_bytes: kind.facts.memory_bytes,
            managed: kind.managed,
            measured: kind.measured,
        });
        PlannerInput {
            kinds: kinds.collect(),
            problem: self.problem.clone(),
            outlooks: self.outlooks.iter().map(|it| it.of).collect(),
            footprints: self.footprints.clone(),
            preferences: self.preferences.clone(),
            tenants: self.tenants.clone(),
            staffed: self.staffed.clone(),
            instances: self.instances.clone(),
        }
    }

    /// Takes over the plans of pipelines.
    pub fn staff(&mut self, plans: &mut Plans) {
        (self.staffed, self.staff) = plans.of(self);
    }

    /// A variant on a type of device, found by their names.
    pub(crate) fn able_on(&self, variant: &str, kind: &str) -> Option<(&EligibleVariant, &Kind)> {
        let mut able = self.able.iter();
        able.find_map(|of| {
            let on = &self.kinds[of.kind.get() as usize];
            (of.variant.id.as_str() == variant && on.name.as_str() == kind).then_some((of, on))
        })
    }

    fn add_choices(&mut self, view: &View, (options, interner): (&Options, &mut Interner)) {
        let published = || self.variants.values().map(|it| &**it);
        let slowdowns = Slowdowns::of(published(), options.estimate_factor);
        let uploaded = uploaded_qualities(published());
        let instances = instances(view);
        let mut needs: BTreeMap<&ApplicationId, Vec<usize>> = BTreeMap::new();
        let has_steps = self.outlooks.iter().any(|outlook| outlook.step.is_some());
        for (at, outlook) in self.outlooks.iter().enumerate() {
            needs.entry(&outlook.need.application).or_default().push(at);
        }
        // Versions other than the current ones are loaded by their first query.
        for (number, published) in self.variants.clone() {
            let variant = &*published;
            if self.is_left_out(view, &instances, variant) {
                continue;
            }
            let group = interner.weights(variant);
            let running = running(view, instances.get(&variant.id));
            let needs = needs.get(&variant.application).into_iter().flatten();
            let of_file = uploaded.get(&variant.model).copied();
            let quality = variant.quality(of_file.unwrap_or(f64::NEG_INFINITY));
            for (device, kind) in self.kinds.iter().enumerate() {
                if !kind.facts.engines.contains(&variant.spec.engine) {
                    continue;
                }
                let expected = slowdowns.expected(variant, &kind.name);
                let profile = &expected.profile;
                let bytes = profile.peak_memory_bytes;
                let memory_share = bytes as f64 / kind.facts.memory_bytes.max(1) as f64;
                if memory_share > 1.0 {
                    continue;
                }
                let on = KindIx::new(device as u32);
                let of = (variant, quality);
                let terms = Terms::expected(of, profile, &kind.facts, options.round_trip);
                let entry = terms.entry((number, on), Readiness::Inactive);
                if has_steps {
                    self.able.push(EligibleVariant {
                        variant: Arc::clone(&published),
                        number,
                        kind: on,
                        quality,
                        profile: Profile::clone(profile),
                    });
                }
                for at in needs.clone().copied() {
                    let forecast = &self.outlooks[at];
                    if !could_answer(&entry, forecast) {
                        continue;
                    }
                    let rps = rps(variant, profile, kind, (forecast, options));
                    let Some(rps) = rps else { continue };
                    self.problem.choices.push(Choice {
                        need: at as u32,
                        variant: number,
                        device: on,
                        rps,
                        memory_share,
                        load_s: profile.load_ms / 1e3,
                        running: running.get(&kind.name).copied().unwrap_or(0),
                    });
                    let lone_ms = profile.tail_latency_ms(1);
                    self.merits.push((quality, lone_ms));
                    self.footprints.push(Footprint {
                        variant: number,
                        own_bytes: bytes.saturating_sub(profile.weights_bytes),
                        group,
                        shared_bytes: profile.weights_bytes,
                        least: 0,
                        load: 0,
                    });
                }
            }
        }
    }

    /// How much each choice is preferred for its need. For a need that prefers a low price, all choices are equal.
    fn preferences(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.problem.choices.len()];
        let mut of_needs: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, choice) in self.problem.choices.iter().enumerate() {
            if self.prefers(choice.need) != Prefer::Cost {
                of_needs.entry(choice.need).or_default().push(at);
            }
        }
        for (need, mut own) in of_needs {
            let is_better = |one: usize, other: usize| {
                let ((quality, ms), (others, others_ms)) = (self.merits[one], self.merits[other]);
                match self.prefers(need) {
                    Prefer::Accuracy => quality.exceeds(others),
                    Prefer::Cost | Prefer::Latency => ms < others_ms,
                }
            };
            let order =
                |one: &usize, other: &usize| is_better(*other, *one).cmp(&is_better(*one, *other));
            own.sort_by(order);
            for pair in own.windows(2) {
                ranks[pair[1]] = ranks[pair[0]] + u32::from(is_better(pair[0], pair[1]));
            }
        }
        ranks
    }

    fn prefers(&self, need: u32) -> Prefer {
        self.outlooks[need as usize].need.class.prefer
    }

    /// Whether another variant dominates this one and can be loaded. If so, no query is answered by this one, and its
    /// profile is the one from the registration, whatever the type of device.
    fn is_left_out(&self, view: &View, instances: &Instances<'_>, variant: &Variant) -> bool {
        let by = variant.dominated_by.as_ref();
        let Some(by) = by.and_then(|by| view.variants.get(by)) else {
            return false;
        };
        let engine = &by.spec.engine;
        let mut kinds = self.kinds.iter();
        let of_it = instances.get(&by.id);
        let has_failed = |worker: &Worker| {
            let mut of_it = of_it.into_iter().flatten();
            of_it.any(|of| of.key.worker == worker.id && of.state == InstanceState::Failed)
        };
        let able = view.workers.values();
        let mut able = able
            .filter(|it| it.record.engines.contains(engine))
            .peekable();
        kinds.any(|kind| kind.facts.engines.contains(engine))
            && (able.peek().is_none() || !able.all(has_failed))
    }
}

/// Adds a need to each application that nobody has asked yet, so that its first query finds a worker, too.
fn add_silent(view: &View, outlooks: &mut Vec<Forecast>) {
    let asked: BTreeSet<ApplicationId> = outlooks
        .iter()
        .map(|forecast| forecast.need.application.clone())
        .collect();
    let all = view.variants.values().map(|of| &of.application);
    let silent: BTreeSet<&ApplicationId> = all.filter(|id| !asked.contains(id)).collect();
    outlooks.extend(silent.into_iter().map(Forecast::nobody));
}

/// Instances by variant. Each look at the fleet goes through the instances once, and not once for each variant.
type Instances<'a> = BTreeMap<&'a VariantId, Vec<&'a Instance>>;

/// Queries a second of a need that a device of a kind answers in time with a variant; `None` if the variant is too
/// slow.
fn rps(
    variant: &Variant,
    profile: &Profile,
    kind: &Kind,
    (forecast, options): (&Forecast, &Options),
) -> Option<f64> {
    let most = variant.most_together();
    let slots = f64::from(kind.facts.slots.max(1));
    let side_by_side = (slots / f64::from(variant.spec.threads.max(1))).max(1.0);
    let run_ms = |batch: u32| profile.latency_ms(batch);
    let tail_ms = profile.tail_latency_ms(1);
    let sizes = (most, side_by_side);
    let on_its_way_ms = options.round_trip as f64 / 1e6;
    let left = |ms: f64| (ms - on_its_way_ms).max(0.0);
    let targets_ms = forecast.latency_ms.map(|(from, to)| (left(from), left(to)));
    let engine_rps = rate_for_class(options.policy, run_ms, tail_ms, sizes, targets_ms)?;
    let Some(around) = kind.surroundings else {
        return Some(engine_rps);
    };
    let rate = around.bound(engine_rps, amounts(variant, profile, forecast));
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The load that a row of a need puts on the surroundings: its share of a query, and the bytes of its inputs at the
/// size at which the variant was measured.
fn amounts(variant: &Variant, profile: &Profile, forecast: &Forecast) -> Amounts {
    let signature = &variant.signature;
    let elements = signature.row_elements(&profile.sizes.dims) as f64;
    let widths = signature.inputs.iter().filter_map(|it| it.data_type.size());
    Amounts {
        queries: forecast.queries_per_row,
        rows: 1.0,
        bytes: elements * widths.max().unwrap_or(1) as f64,
    }
}

/// The instances of each variant.
fn instances(view: &View) -> Instances<'_> {
    let mut instances = Instances::new();
    for instance in view.instances.values() {
        let of = instances.entry(&instance.key.variant).or_default();
        of.push(instance);
    }
    instances
}

/// What workers that are up and stay have loaded or are loading, and what serves there.
fn loaded(view: &View, kinds: &[Kind], interner: &mut Interner) -> Vec<scaling::Instance> {
    let mut devices: BTreeMap<&WorkerId, KindIx> = BTreeMap::new();
    for (at, kind) in (0..).zip(kinds) {
        let workers = up(view, &kind.name).into_iter();
        devices.extend(workers.map(|worker| (&worker.id, KindIx::new(at))));
    }
    let is_held = |of: &&Instance| of.state.is_serving() || of.state == InstanceState::Loading;
    let held = view.instances.values().filter(is_held);
    let held = held.filter_map(|of| {
        let device = *devices.get(&of.key.worker)?;
        Some(scaling::Instance {
            variant: interner.ordinal(&of.key.variant),
            device,
            worker: of.key.worker.clone(),
            serves: of.state.is_serving(),
        })
    });
    held.collect()
}

/// By type: the workers that serve a variant with these instances.
fn running(view: &View, instances: Option<&Vec<&Instance>>) -> BTreeMap<DeviceTypeName, u32> {
    let mut running = BTreeMap::new();
    for instance in instances.into_iter().flatten() {
        if instance.state.is_serving() {
            let worker = view.workers.get(&instance.key.worker);
            if let Some(name) = worker.and_then(type_of) {
                *running.entry(name.clone()).or_insert(0) += 1;
            }
        }
    }
    running
}

fn type_of(worker: &Worker) -> Option<&DeviceTypeName> {
    Some(&worker.record.device_type.as_ref()?.name)
}

/// The workers of a type that are up and stay. If none stays, those that somebody has taken out serve until others are
/// up, so what is planned for them is desired in the meantime.
fn up<'a>(view: &'a View, name: &DeviceTypeName) -> Vec<&'a Worker> {
    let workers = view.workers.values();
    let serve = workers.filter(|worker| !worker.record.draining && type_of(worker) == Some(name));
    let (staying, leaving): (Vec<&Worker>, Vec<&Worker>) = serve.partition(|worker| worker.stays());
    match staying.is_empty() {
        true => leaving,
        false => staying,
    }
}

/// What surrounds the engines on a worker of a type, as its workers report it, or as it is configured if none does.
fn surroundings(workers: &[&Worker], facts: &DeviceType) -> Option<Surroundings> {
    let said = workers.iter().filter_map(|it| it.record.surroundings);
    // A worker may report any value.
    let sound = said.filter(|it| {
        let figures = [it.cores, it.factor];
        figures.iter().all(|it| it.is_finite() && *it > 0.0)
    });
    let stated = || Surroundings::unseen(facts.slots);
    Some(Surroundings::middle(sound.collect()).unwrap_or_else(stated))
}

/// The types that are configured, were seen or are present.
fn kinds(
    view: &View,
    known: &BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    (options, interner): (&Options, &mut Interner),
) -> Vec<Kind> {
    let types = DeviceTypes::of(view.workers.values());
    let mut all: BTreeMap<DeviceTypeName, Arc<DeviceType>> = known.clone();
    for facts in types.all() {
        all.insert(facts.name.clone(), Arc::clone(facts));
    }
    let kinds = all.into_iter().map(|(name, facts)| {
        let workers = up(view, &name);
        let up = workers.len() as u32;
        let pool = options.pools.get(&name);
        let (least, most) = match pool {
            Some((least, most)) => (*least, *most.max(least)),
            // The operator decides how many there are.
            None => (up, up),
        };
        let has = |state: InstanceState| {
            let with = workers.iter().filter(|worker| {
                let mut instances = view.instances.values();
                instances.any(|of| of.key.worker == worker.id && of.state == state)
            });
            with.count() as u32
        };
        let busy = workers.iter().map(|worker| worker.record.utilization);
        let busy: f64 = busy.filter(|share| share.is_finite()).sum();
        Kind {
            measured: Measurement {
                devices: up,
                busy_share: (busy / f64::from(up.max(1))).clamp(0.0, 1.0),
                interfered: has(InstanceState::Interfered),
                overloaded: has(InstanceState::Overloaded),
                bad_share: 0.0,
            },
            key: interner.device_type(&name),
            surroundings: surroundings(&workers, &facts).filter(|_| options.counts_surroundings),
            managed: pool.is_some(),
            name,
            facts,
            up,
            least,
            most,
        }
    });
    kinds.collect()
}
