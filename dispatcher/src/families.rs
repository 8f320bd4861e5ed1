//! How many queries of a model run side by side, and on how many threads each (SERF, section V).
//!
//! Variants that differ only in their threads are a *family*. They share their weights, so a change from one to another
//! moves nothing. For each family SERF watches the arrivals and chooses a configuration. A query that selection gave to
//! one member goes to the member with the chosen threads. The batches of every member occupy as many slots as let the
//! chosen number run side by side. What runs keeps its threads.
//!
//! SERF's model has requests run one by one. Families are therefore made of variants that do: those of models without a
//! batch dimension, and those with a maximum batch of one. If rows share batches, batching shortens the wait, and
//! selection by targets chooses the threads.
//!
//! The interference between requests is measured with the variants on each type of device, and is then learnt from the
//! queries themselves. The predictions are rebuilt when the measured service times have changed by [`CHANGE`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use sextant_parallelism::{Configuration, Profile, Serf, Summary, Tuple};
use sextant_schedule::Nanos;
use sextant_types::{EngineName, ModelId, Optimization, Precision, index::VariantIx};

use sextant_picture::IndexedVariant;

/// Share by which a service time has to change before predictions are rebuilt.
const CHANGE: f64 = 0.1;

/// Weight of a new service time in the moving mean.
const WEIGHT: f64 = 0.05;

/// What the members of a family have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    model: ModelId,
    engine: EngineName,
    precision: Precision,
    optimization: Optimization,
    max_batch: u16,
}

/// Has the number of threads chosen by load, within these cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The most cores of a worker that the queries of one model may use; `None` for all.
    pub cores: Option<u16>,
}

/// All families of the published variants.
#[derive(Default)]
pub(crate) struct Families {
    /// By ordinal of a member.
    by_member: BTreeMap<VariantIx, Arc<Family>>,
    by_key: BTreeMap<Key, Arc<Family>>,
}

/// Variants that differ only in their threads.
pub(crate) struct Family {
    /// Threads and ordinal, fewest threads first.
    members: Vec<(u16, VariantIx)>,
    cores: u16,
    /// Queries that wait or run.
    under_way: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    serf: Serf,
    /// The configuration that sets the slots of the members; `None` before the first query.
    current: Option<Configuration>,
    /// The profile that the predictions were built from; `measured` is the profile as it is learnt since.
    built: Profile,
    measured: Profile,
}

/// The member that a family chose for a query.
pub(crate) struct MemberAssignment {
    /// The member that takes the query.
    pub(crate) ordinal: VariantIx,
    /// The slots of a batch of each member, if they have changed.
    pub(crate) slots: Vec<(VariantIx, u16)>,
}

/// Counts a query as under way until it is dropped.
pub(crate) struct InFlightGuard {
    family: Arc<Family>,
    before: usize,
}

// === impl Families ===

impl Families {
    /// The families of the published variants on workers with `cores`. Families that have not changed keep what they
    /// have learnt.
    pub(crate) fn build<'a>(
        &self,
        choice: Choice,
        published: impl Iterator<Item = &'a Arc<IndexedVariant>>,
        cores: impl Fn(&IndexedVariant) -> u16,
    ) -> Self {
        let mut groups: BTreeMap<Key, Vec<&Arc<IndexedVariant>>> = BTreeMap::new();
        for known in published.filter(|known| runs_alone(known)) {
            groups.entry(Key::of(known)).or_default().push(known);
        }
        let mut families = Self::default();
        for (key, mut members) in groups {
            members.sort_by_key(|known| known.variant.spec.threads);
            let cores = members.iter().map(|known| cores(known)).max();
            let cores = cores.map(|cores| choice.cores.map_or(cores, |most| most.clamp(1, cores)));
            members.retain(|known| cores.is_some_and(|cores| number(known).0 <= cores));
            let known = self.by_key.get(&key).cloned();
            let numbers: Vec<(u16, VariantIx)> =
                members.iter().map(|known| number(known)).collect();
            let same =
                |family: &Arc<Family>| family.members == numbers && Some(family.cores) == cores;
            let family = known.filter(same).or_else(|| {
                let profile = profile(&members, cores.unwrap_or(1));
                Some(Arc::new(Family::new(numbers, cores?, profile)?))
            });
            if let Some(family) = family {
                for (_, ordinal) in &family.members {
                    families.by_member.insert(*ordinal, Arc::clone(&family));
                }
                families.by_key.insert(key, family);
            }
        }
        families
    }

    /// The family of a variant.
    pub(crate) fn of(&self, ordinal: VariantIx) -> Option<&Arc<Family>> {
        self.by_member.get(&ordinal)
    }
}

impl Key {
    fn of(known: &IndexedVariant) -> Self {
        let (variant, spec) = (&known.variant, &known.variant.spec);
        Self {
            model: variant.model.clone(),
            engine: spec.engine.clone(),
            precision: spec.precision,
            optimization: spec.optimization,
            max_batch: spec.max_batch,
        }
    }
}

fn number(known: &Arc<IndexedVariant>) -> (u16, VariantIx) {
    (known.variant.spec.threads.max(1), known.ordinal)
}

fn runs_alone(known: &IndexedVariant) -> bool {
    !known.variant.shares_batches() || known.max_rows() == 1
}

/// What was measured on the type of device where they run, as tuples. There is no interference if queries were not
/// measured side by side.
fn profile(members: &[&Arc<IndexedVariant>], cores: u16) -> Profile {
    let mut profile = Profile::default();
    for known in members {
        let (intra, _) = number(known);
        let measured = known.measured();
        let lone = measured.batches.first();
        for running in 1..=cores / intra {
            let beside = measured.concurrent.iter().find(|of| of.running == running);
            let (mean_ms, scv, samples) = match (beside, lone) {
                (Some(of), _) => (of.mean_ms, of.scv, of.samples),
                (None, Some(lone)) => (lone.mean_ms, 0.0, lone.samples),
                (None, None) => (0.0, 0.0, 0),
            };
            let summary = Summary {
                samples: samples as usize,
                mean_s: mean_ms / 1e3,
                scv,
            };
            profile.insert(tuple(running, intra), summary);
        }
    }
    profile
}

fn tuple(running: u16, intra: u16) -> Tuple {
    Tuple {
        running,
        inter: 1,
        intra,
    }
}

// === impl Family ===

impl Family {
    /// Returns `None` if there is nothing to choose.
    fn new(members: Vec<(u16, VariantIx)>, cores: u16, profile: Profile) -> Option<Self> {
        if members.len() < 2 {
            return None;
        }
        let serf = Serf::of(&profile).ok().flatten()?;
        Some(Self {
            members,
            cores,
            under_way: AtomicUsize::new(0),
            state: Mutex::new(State {
                serf,
                current: None,
                built: profile.clone(),
                measured: profile,
            }),
        })
    }

    /// A query arrives. `usable` tells which members may answer it.
    pub(crate) fn assign(
        &self,
        now: Nanos,
        chosen: VariantIx,
        usable: impl Fn(VariantIx) -> bool,
    ) -> MemberAssignment {
        let mut state = self.state.lock();
        state.serf.arrived();
        let configuration = state.serf.choose(now);
        let changed = state.current.replace(configuration) != Some(configuration);
        drop(state);
        let member = self
            .members
            .iter()
            .find(|(threads, _)| *threads == configuration.intra)
            .filter(|(_, ordinal)| usable(*ordinal));
        MemberAssignment {
            ordinal: member.map_or(chosen, |(_, ordinal)| *ordinal),
            slots: match changed {
                true => self.slots(configuration),
                false => Vec::new(),
            },
        }
    }

    /// Counts a query as under way.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlightGuard {
        InFlightGuard {
            before: self.under_way.fetch_add(1, Ordering::Relaxed),
            family: Arc::clone(self),
        }
    }

    /// The slots of a batch of each member, so that no more than the chosen number run side by side.
    fn slots(&self, configuration: Configuration) -> Vec<(VariantIx, u16)> {
        let fair = self.cores / configuration.service.max(1);
        self.members
            .iter()
            .map(|(threads, ordinal)| (*ordinal, fair.max(*threads)))
            .collect()
    }

    fn learn(&self, running: u16, ordinal: VariantIx, service_s: f64) {
        let member = self.members.iter().find(|(_, member)| *member == ordinal);
        let Some((intra, _)) = member else { return };
        let mut state = self.state.lock();
        let at = tuple(running, *intra);
        let Some(mut summary) = state.measured.tuple(at).copied() else {
            return;
        };
        summary.mean_s += WEIGHT * (service_s - summary.mean_s);
        summary.samples += 1;
        state.measured.insert(at, summary);
        let built = state.built.tuple(at).map_or(0.0, |built| built.mean_s);
        if (summary.mean_s - built).abs() <= CHANGE * built {
            return;
        }
        let State { serf, measured, .. } = &mut *state;
        if serf.renew(measured).is_ok() {
            state.built = state.measured.clone();
        }
    }
}

// === impl InFlightGuard ===

impl InFlightGuard {
    /// The query was answered by a member after `service_s` of run time. The family learns from it how requests affect
    /// each other if the same number of queries was under way at its end as at its start and none of them waited.
    pub(crate) fn answered(&self, ordinal: VariantIx, service_s: f64) {
        let now = self.family.under_way.load(Ordering::Relaxed);
        let running = self.before + 1;
        let member = self.family.members.iter().find(|(_, of)| *of == ordinal);
        let fit = member.map_or(0, |(threads, _)| self.family.cores / threads);
        if now == running
            && let Ok(running) = u16::try_from(running)
            && running <= fit
        {
            self.family.learn(running, ordinal, service_s);
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.family.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
