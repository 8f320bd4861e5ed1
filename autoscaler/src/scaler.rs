//! Decides what is wanted: how many workers of each type, and which variants on how many of them.
//!
//! Each look plans twice. One plan is free to choose how many workers there are; it says how many there
//! should be, and what was measured may say more ([`sextant_policies::scaling::fleet`]). The other plan
//! has the workers that are up; it says what should be loaded on them now. So a variant that a cheaper
//! machine will run is kept where it is until that machine is there.

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{Action, Count, Decision, Pool, Subject, View, Wanted, WantedVariant};
use sextant_policies::scaling::{
    Infaas, Plan, Policy, Room, Steady,
    fleet::Trigger,
    instances::{self, Weights},
    shared::{self, Effort},
    spread,
};
use sextant_types::{DeviceType, DeviceTypeName, VariantId};

use crate::{
    Config,
    demand::Seen,
    explain::{self, Change},
    look,
    picture::{Fleet, Picture},
};

/// Share of a worker's memory that is planned for; the rest is for what a page or an allocator wastes.
const MEMORY: f64 = 0.9;

/// How long a variant that is not planned for any more stays wanted, ms, where it does not take longer
/// to load.
const VARIANT_HOLD_MS: u64 = 60_000;

/// Longest time ahead that is foreseen, s.
const AHEAD_S: f64 = 180.0;

/// Decides, and remembers what was asked for and what it has decided.
pub(crate) struct Scaler {
    config: Config,
    seen: Seen,
    /// Facts of types of which no worker may be up.
    facts: BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    pools: Steady<DeviceTypeName>,
    variants: Steady<VariantId>,
    infaas: Infaas,
    /// What was wanted last; `None` before the first look of a leadership.
    last: Option<Last>,
    trouble: BTreeMap<DeviceTypeName, Arc<str>>,
}

/// What was decided so far.
struct Last {
    pools: BTreeMap<DeviceTypeName, u32>,
    variants: BTreeMap<VariantId, u32>,
    decisions: Vec<Decision>,
    number: u64,
}

impl Scaler {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            pools: Steady::new(config.hold_ms),
            variants: Steady::new(VARIANT_HOLD_MS),
            config,
            seen: Seen::default(),
            facts: BTreeMap::new(),
            infaas: Infaas::new(Weights::default()),
            last: None,
            trouble: BTreeMap::new(),
        }
    }

    /// Another may have decided since: what it said counts as decided now.
    pub(crate) fn begin(&mut self) {
        self.last = None;
        self.pools = Steady::new(self.config.hold_ms);
        self.variants = Steady::new(VARIANT_HOLD_MS);
    }

    /// What went wrong with the workers of a type, or that nothing does any more.
    pub(crate) fn report(&mut self, pool: &DeviceTypeName, trouble: Option<Arc<str>>) {
        match trouble {
            Some(trouble) => {
                self.trouble.insert(pool.clone(), trouble);
            }
            None => {
                self.trouble.remove(pool);
            }
        }
    }

    /// What is wanted now, under `token`.
    pub(crate) fn decide(&mut self, view: &View, now_ms: u64, token: u64) -> Wanted {
        self.seen.observe(now_ms, view.demand.as_ref());
        self.learn(view, now_ms);
        let starts = self.facts.values().map(|facts| facts.start_ms as f64 / 1e3);
        let ahead_s = starts.fold(0.0, f64::max).min(AHEAD_S);
        let outlooks = self.seen.outlook(now_ms, ahead_s, self.config.idle_ms);
        let picture = Picture::new(view, outlooks, &self.facts, &self.config);
        let free = self.plan(&picture, Fleet::Free);
        let here = self.plan(&picture, Fleet::AsItIs);
        let pools = self.pools(&picture, &free, now_ms);
        let planned = self.planned(&picture, &here, now_ms);
        let decisions = self.explain(&picture, (&free, &here), (&pools, &planned), now_ms);
        let variants = self.variants(view, &planned);
        let idle_unload_ms = self.config.idle_unload_s.saturating_mul(1000);
        let pools = pools.into_iter().map(|(pool, _)| pool).collect();
        Wanted::new(token, variants, idle_unload_ms).with_scaling(pools, decisions)
    }

    /// Takes over facts of types, and at the first look what another has decided.
    fn learn(&mut self, view: &View, now_ms: u64) {
        for (name, pool) in &self.config.pools {
            if let Some(facts) = &pool.facts {
                self.facts
                    .entry(name.clone())
                    .or_insert_with(|| Arc::clone(facts));
            }
        }
        let said = view.wanted.as_ref().map_or(&[][..], |wanted| &wanted.pools);
        for pool in said {
            if let (Some(facts), true) = (
                &pool.facts,
                self.config.pools.contains_key(&pool.device_type),
            ) {
                self.facts
                    .entry(pool.device_type.clone())
                    .or_insert_with(|| Arc::clone(facts));
            }
        }
        for worker in view.workers.values() {
            if let Some(facts) = &worker.record.device_type
                && self.config.pools.contains_key(&facts.name)
            {
                self.facts.insert(facts.name.clone(), Arc::clone(facts));
            }
        }
        if self.last.is_some() {
            return;
        }
        let wanted = view.wanted.as_deref();
        let mut last = Last {
            pools: BTreeMap::new(),
            variants: BTreeMap::new(),
            decisions: wanted.map_or_else(Vec::new, |wanted| wanted.decisions.clone()),
            number: 0,
        };
        last.number = last.decisions.last().map_or(0, |decision| decision.number);
        for pool in said {
            last.pools.insert(pool.device_type.clone(), pool.wanted);
            self.pools
                .assume(pool.device_type.clone(), now_ms, pool.wanted);
        }
        for of in wanted.into_iter().flat_map(|wanted| &wanted.variants) {
            if of.needed > 0 {
                last.variants.insert(of.variant.clone(), of.needed);
                self.variants.assume(of.variant.clone(), now_ms, of.needed);
            }
        }
        self.last = Some(last);
    }

    fn plan(&mut self, picture: &Picture, fleet: Fleet) -> Plan {
        let problem = picture.problem_of(fleet);
        match self.config.policy {
            Policy::Sextant => shared::plan(&problem, Effort::default()),
            Policy::Ilp => instances::plan(&problem, Weights::default())
                .unwrap_or_else(|| shared::greedy(&problem)),
            // What it waits for is counted once a look.
            Policy::Infaas if fleet == Fleet::AsItIs => self.infaas.clone().plan(&problem),
            Policy::Infaas => self.infaas.plan(&problem),
        }
    }

    /// How many workers there should be, and what says that there must be more than planned.
    fn pools(
        &mut self,
        picture: &Picture,
        free: &Plan,
        now_ms: u64,
    ) -> Vec<(Pool, Option<Trigger>)> {
        let mut pools = Vec::with_capacity(picture.kinds.len());
        for (kind, planned) in picture.kinds.iter().zip(&free.devices) {
            let (must, trigger) = match self.config.policy {
                Policy::Sextant => kind.measured.sextant(),
                Policy::Ilp | Policy::Infaas => kind.measured.infaas(),
            };
            let trigger = trigger.filter(|_| must > *planned);
            let managed = self.config.pools.get(&kind.name);
            let planned = (*planned).max(must).clamp(kind.least, kind.most);
            let wanted = match managed {
                Some(_) => self.pools.want(kind.name.clone(), now_ms, planned),
                None => kind.up,
            };
            let pool = Pool {
                device_type: kind.name.clone(),
                wanted: wanted.clamp(kind.least, kind.most),
                least: kind.least,
                most: kind.most,
                provider: managed.map(|pool| pool.provider.name().into()),
                facts: Some(Arc::clone(&kind.facts)),
                trouble: self.trouble.get(&kind.name).cloned(),
            };
            pools.push((pool, trigger));
        }
        pools
    }

    /// Variants that load asks for, and on how many workers; all of a type where there is room.
    fn planned(&mut self, picture: &Picture, here: &Plan, now_ms: u64) -> BTreeMap<VariantId, u32> {
        let mut planned: BTreeMap<VariantId, u32> = BTreeMap::new();
        for (at, kind) in picture.kinds.iter().enumerate() {
            for (variant, count) in self.on_kind(picture, here, at, kind.up) {
                *planned.entry(variant).or_default() += count;
            }
        }
        let mut names: Vec<VariantId> = planned.keys().cloned().collect();
        names.extend(
            self.last
                .iter()
                .flat_map(|last| last.variants.keys().cloned()),
        );
        names.sort();
        names.dedup();
        let published = |id: &VariantId| picture.variants.iter().any(|it| it.id == *id);
        let wanted = names.into_iter().filter(published).map(|name| {
            let now = planned.get(&name).copied().unwrap_or(0);
            let count = self.variants.want(name.clone(), now_ms, now);
            (name, count)
        });
        wanted.filter(|(_, count)| *count > 0).collect()
    }

    fn on_kind(
        &self,
        picture: &Picture,
        here: &Plan,
        kind: usize,
        up: u32,
    ) -> Vec<(VariantId, u32)> {
        let problem = &picture.problem;
        let id = |variant: u32| picture.variants[variant as usize].id.clone();
        let on = || {
            let all = problem.choices.iter().enumerate();
            all.filter(move |(_, choice)| choice.device as usize == kind)
        };
        if self.config.policy != Policy::Sextant {
            let counted = on().filter(|(at, _)| here.instances[*at] > 0);
            let counted =
                counted.map(|(at, choice)| (id(choice.variant), here.instances[at].min(up)));
            return counted.collect();
        }
        let slots = u32::from(picture.kinds[kind].facts.slots.max(1));
        let mut busy: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        for (at, choice) in on().filter(|(at, _)| here.served_rps[*at] > 0.0) {
            let (_, sum) = busy.entry(choice.variant).or_insert((at, 0.0));
            *sum += here.served_rps[at] / choice.rps;
        }
        let footprints: Vec<_> = busy
            .values()
            .map(|(at, busy)| picture.footprint(*at, shared::staffed(*busy, slots)))
            .collect();
        let memory = picture.kinds[kind].facts.memory_bytes as f64 * MEMORY;
        let room = Room {
            devices: up,
            memory_bytes: memory as u64,
        };
        let counts = spread(&footprints, room);
        let each = footprints.iter().zip(counts);
        each.filter(|(_, count)| *count > 0)
            .map(|(footprint, count)| (id(footprint.variant), count))
            .collect()
    }

    /// What load asks for, pinned, and beside it what is kept warm.
    fn variants(&self, view: &View, planned: &BTreeMap<VariantId, u32>) -> Vec<WantedVariant> {
        let mut wanted: Vec<WantedVariant> = planned
            .iter()
            .map(|(variant, count)| WantedVariant {
                variant: variant.clone(),
                workers: Count::Workers(*count),
                pinned: true,
                needed: *count,
            })
            .collect();
        let warm = look::wanted(view, self.config.warm_memory_share);
        for of in warm {
            match wanted.iter_mut().find(|known| known.variant == of.variant) {
                // Warm wherever it can be, and needed on some of these.
                Some(known) => known.workers = of.workers,
                None => wanted.push(of),
            }
        }
        wanted
    }

    /// Records what has changed since the last look.
    fn explain(
        &mut self,
        picture: &Picture,
        (free, here): (&Plan, &Plan),
        (pools, planned): (&[(Pool, Option<Trigger>)], &BTreeMap<VariantId, u32>),
        now_ms: u64,
    ) -> Vec<Decision> {
        let problem = picture.problem_of(Fleet::Free);
        let last = self.last.as_mut().expect("the look began with it");
        let mut changes = Vec::new();
        for (at, (pool, trigger)) in pools.iter().enumerate() {
            let before = last.pools.insert(pool.device_type.clone(), pool.wanted);
            let managed = pool.provider.is_some();
            let from = before.unwrap_or(picture.kinds[at].up);
            if managed && from != pool.wanted {
                let action = match pool.wanted > from {
                    true => Action::AddWorkers,
                    false => Action::RemoveWorkers,
                };
                changes.push(Change {
                    subject: Subject::Pool(pool.device_type.clone()),
                    action,
                    from,
                    to: pool.wanted,
                    reason: explain::of_pool(
                        picture,
                        free,
                        at,
                        (pool, *trigger),
                        self.config.hold_ms,
                    ),
                    alternatives: explain::other_pools(&problem, picture, free, at, from),
                    inputs: explain::inputs(picture, Some(at), None),
                });
            }
        }
        changes.extend(explain::of_variants(picture, here, &last.variants, planned));
        last.variants.clone_from(planned);
        for change in changes {
            last.number += 1;
            tracing::info!(
                number = last.number,
                action = change.action.name(),
                from = change.from,
                to = change.to,
                reason = &*change.reason,
                "decided"
            );
            last.decisions.push(change.decide(last.number, now_ms));
        }
        let surplus = last
            .decisions
            .len()
            .saturating_sub(sextant_metadata::MOST_DECISIONS);
        last.decisions.drain(..surplus);
        last.decisions.clone()
    }
}
