//! Decides the desired state and explains it: [`sextant_scaling::Scaler`] over the content of the
//! store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sextant_metadata::{Action, Decision, DesiredState, Pool, Subject, View};
use sextant_picture::{Interner, Picture, Plans, seats};
use sextant_scaling as scaling;
use sextant_scaling::{Options, ScalingDecision};
use sextant_types::{DeviceType, DeviceTypeName, VariantId};

use crate::{
    Config,
    demand::NeedHistory,
    explain::{self, Change},
};

/// Decides, and keeps the history of demand and of its own decisions.
pub(crate) struct Scaler {
    config: Config,
    seen: NeedHistory,
    /// Facts of device types, also of those without a worker that is up.
    facts: BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    /// The numbers of variants and types, which stay the same over all looks.
    interner: Interner,
    scaler: scaling::Scaler,
    /// The plans of pipelines.
    plans: Plans,
    /// The last desired state; `None` before the first look of a leadership.
    last: Option<LastDecision>,
    trouble: BTreeMap<DeviceTypeName, Arc<str>>,
}

/// The decisions so far.
struct LastDecision {
    pools: BTreeMap<DeviceTypeName, u32>,
    variants: BTreeMap<VariantId, u32>,
    decisions: Vec<Decision>,
    number: u64,
}

// === impl LastDecision ===

impl LastDecision {
    /// Updates the reasons of decisions that still hold with the present load.
    fn refresh(&mut self, of: (&Picture, &ScalingDecision), pools: &[Pool], config: &Config) {
        let mut told = BTreeSet::new();
        for decision in self.decisions.iter_mut().rev() {
            if !told.insert(decision.subject.clone()) {
                continue;
            }
            if let Some((reason, inputs)) = explain::refreshed(of, decision, pools, config) {
                (decision.reason, decision.inputs) = (reason, inputs);
            }
        }
    }
}

// === impl Scaler ===

impl Scaler {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            scaler: scaling::Scaler::new(options(&config)),
            config,
            seen: NeedHistory::default(),
            facts: BTreeMap::new(),
            interner: Interner::default(),
            plans: Plans::default(),
            last: None,
            trouble: BTreeMap::new(),
        }
    }

    /// Starts a leadership. Another process may have decided since: its desired state counts as
    /// decided now.
    pub(crate) fn begin(&mut self) {
        self.last = None;
        self.scaler = scaling::Scaler::new(options(&self.config));
    }

    /// The numbers of variants.
    pub(crate) fn interner(&self) -> &Interner {
        &self.interner
    }

    /// Notes a problem with the workers of a type, or with `None` that it has ended.
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

    /// The desired state at `now_ms`, under `token`.
    pub(crate) fn decide(&mut self, view: &View, now_ms: u64, token: u64) -> DesiredState {
        self.seen.observe(now_ms, view.demand.as_ref());
        self.learn(view, now_ms);
        let ahead_s = sextant_picture::ahead_s(self.facts.values().map(|facts| &**facts));
        let outlooks = self.seen.forecast(now_ms, ahead_s, self.config.idle_ms);
        let options = self.config.picture();
        let numbers = (&options, &mut self.interner);
        let mut picture = Picture::new(view, outlooks, &self.facts, numbers);
        picture.staff(&mut self.plans);
        let decided = self.scaler.decide(&picture.input(), now_ms);
        if decided.reserved.iter().all(|devices| *devices == 0) {
            // There is no room for the plans beside the other load.
            picture.staff.clear();
        }
        let pools = self.pools(&picture, &decided);
        let planned = Self::planned(&picture, &decided);
        let decisions = self.explain(&picture, &decided, (&pools, &planned), now_ms);
        let share = self.config.warm_memory_share;
        let warm = sextant_picture::kept_warm(view, share, &mut self.interner);
        let variants = sextant_picture::desired(&planned, warm);
        let idle_unload_ms = self.config.idle_unload_s.saturating_mul(1000);
        let held_back = picture.set.held_back(&picture.outlooks, &decided.cuts);
        let batches = picture.batches(&decided.here);
        let desired = DesiredState {
            held_back,
            ..DesiredState::new(token, variants, idle_unload_ms).with_scaling(pools, decisions)
        }
        .with_batches(batches);
        let emptying = seats::emptying(view, &desired, &self.interner);
        desired.with_emptying(emptying)
    }

    /// Takes over facts of device types, and at the first look the desired state of the previous
    /// leader.
    fn learn(&mut self, view: &View, now_ms: u64) {
        for (name, pool) in &self.config.pools {
            if let Some(facts) = &pool.facts {
                self.facts
                    .entry(name.clone())
                    .or_insert_with(|| Arc::clone(facts));
            }
        }
        let said = view
            .desired
            .as_ref()
            .map_or(&[][..], |desired| &desired.pools);
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
        let desired = view.desired.as_deref();
        let mut last = LastDecision {
            pools: BTreeMap::new(),
            variants: BTreeMap::new(),
            decisions: desired.map_or_else(Vec::new, |desired| desired.decisions.clone()),
            number: 0,
        };
        last.number = last.decisions.last().map_or(0, |decision| decision.number);
        for pool in said {
            last.pools.insert(pool.device_type.clone(), pool.desired);
            let key = self.interner.device_type(&pool.device_type);
            self.scaler.assume_devices(key, now_ms, pool.desired);
        }
        for of in desired.into_iter().flat_map(|desired| &desired.variants) {
            if of.needed > 0 {
                last.variants.insert(of.variant.clone(), of.needed);
                let key = self.interner.ordinal(&of.variant);
                self.scaler.assume_variant(key, now_ms, of.needed);
            }
        }
        self.last = Some(last);
    }

    /// The number of workers that each type should have.
    fn pools(&self, picture: &Picture, decided: &ScalingDecision) -> Vec<Pool> {
        let kinds = picture.kinds.iter().zip(&decided.devices);
        let pools = kinds.map(|(kind, desired)| Pool {
            device_type: kind.name.clone(),
            desired: desired.devices,
            least: kind.least,
            most: kind.most,
            provider: (self.config.pools.get(&kind.name)).map(|pool| pool.provider.name().into()),
            facts: Some(Arc::clone(&kind.facts)),
            trouble: self.trouble.get(&kind.name).cloned(),
        });
        pools.collect()
    }

    /// Published variants that the load needs, and on how many workers.
    fn planned(picture: &Picture, decided: &ScalingDecision) -> BTreeMap<VariantId, u32> {
        let named = decided.variants.iter().filter_map(|(key, count)| {
            let published = picture.variants.get(key)?;
            Some((published.id.clone(), *count))
        });
        named.collect()
    }

    /// Records what has changed since the last look.
    fn explain(
        &mut self,
        picture: &Picture,
        decided: &ScalingDecision,
        (pools, planned): (&[Pool], &BTreeMap<VariantId, u32>),
        now_ms: u64,
    ) -> Vec<Decision> {
        let last = self.last.as_mut().expect("the look began with it");
        let mut changes = Vec::new();
        for (at, pool) in pools.iter().enumerate() {
            let before = last.pools.insert(pool.device_type.clone(), pool.desired);
            let managed = pool.provider.is_some();
            let from = before.unwrap_or(picture.kinds[at].up);
            if managed && from != pool.desired {
                let action = match pool.desired > from {
                    true => Action::AddWorkers,
                    false => Action::RemoveWorkers,
                };
                changes.push(Change {
                    subject: Subject::Pool(pool.device_type.clone()),
                    action,
                    from,
                    to: pool.desired,
                    reason: explain::of_pool(
                        picture,
                        decided,
                        at,
                        (pool, decided.devices[at]),
                        &self.config,
                    ),
                    alternatives: explain::other_pools(picture, decided, at, from),
                    inputs: explain::inputs(picture, Some(at), None),
                });
            }
        }
        changes.extend(explain::of_variants(
            picture,
            &decided.here,
            &last.variants,
            planned,
        ));
        last.variants.clone_from(planned);
        last.refresh((picture, decided), pools, &self.config);
        for change in changes {
            last.number += 1;
            let (pool, variant) = match &change.subject {
                Subject::Pool(pool) => (Some(pool.as_str()), None),
                Subject::Variant(variant) => (None, Some(variant.as_str())),
            };
            tracing::info!(
                number = last.number,
                pool,
                variant,
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

fn options(config: &Config) -> Options {
    Options {
        policy: config.policy,
        hold_ms: config.hold_ms,
        cold_start_s: config.cold_start_s,
        ..Options::default()
    }
}
