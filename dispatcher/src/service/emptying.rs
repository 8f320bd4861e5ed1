//! Moves variants from workers that are to leave, and decides when workers that somebody has taken out are told to
//! leave.
//!
//! A worker that is to leave serves on while the variants that only it has are loaded elsewhere. The autoscaler ends
//! workers that are in excess of the desired count. This module tells a worker that somebody has taken out to leave
//! once nothing depends on it: every desired variant that it serves also serves on another worker, and no replacement
//! is still to come. If that never happens, because nothing is free or no other worker is there, the worker is told
//! after a time in any case. The mark is in the metadata store, so the next leader continues.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_metadata::{Instance, View, Worker};
use sextant_types::{VariantId, WorkerId, index::DeviceIx};

use super::{Updater, present::Present};
use crate::driver::Driver;

/// A worker that was told to leave and does not drain is told again after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Workers that somebody has taken out, while they can be reached, by position and life.
#[derive(Default)]
pub(super) struct Leavers(BTreeMap<(DeviceIx, u64), Leaver>);

struct Leaver {
    since: Instant,
    /// When it was last told to leave.
    told: Option<Instant>,
}

/// A desired variant that serves on no worker that stays.
struct SoleInstance<'a> {
    variant: &'a VariantId,
    on: &'a WorkerId,
}

impl Updater {
    /// Moves what only workers that are to leave have loaded, and tells workers that somebody has taken out to leave.
    pub(super) fn empty(&mut self, view: &View) {
        let driver = Arc::clone(&self.dispatcher.driver);
        let emptying = view.desired.as_ref();
        let none = emptying.is_none_or(|desired| desired.emptying.is_empty())
            && !view.workers.values().any(|worker| worker.leaving);
        if !driver.leads() || none {
            self.leavers = Leavers::default();
            return;
        }
        let present = self.kinds.present(&driver, view);
        let stay = staying(view, &present);
        let alone = alone(view, &stay);
        let to: Vec<DeviceIx> = stay.iter().map(|one| one.at).collect();
        for of in &alone {
            if let Some(from) = present.iter().find(|one| one.id == *of.on) {
                let variant = self.interner.ordinal(of.variant);
                driver.relocate(variant, from.at, &to);
            }
        }
        let needed: BTreeSet<&WorkerId> = alone.iter().map(|of| of.on).collect();
        let longest = self.dispatcher.config.longest_stay;
        self.leavers
            .look(&driver, (view, &present), longest, &needed);
    }
}

// === impl Leavers ===

impl Leavers {
    /// Tells those workers to leave on which nothing depends, or that have stayed for `longest`.
    fn look(
        &mut self,
        driver: &Driver,
        (view, present): (&View, &[Present]),
        longest: Duration,
        needed: &BTreeSet<&WorkerId>,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for one in present {
            let worker = view.workers.get(&one.id);
            let Some(worker) = worker.filter(|it| it.leaving && !it.record.draining) else {
                continue;
            };
            let key = (one.at, one.life);
            let mut leaver = before.remove(&key).unwrap_or_else(Leaver::new);
            let depends = needed.contains(&one.id) || lacks_another(view, worker);
            if !depends || leaver.since.elapsed() >= longest {
                leaver.tell(driver, one, depends);
            }
            self.0.insert(key, leaver);
        }
    }
}

impl Leaver {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            told: None,
        }
    }

    fn tell(&mut self, driver: &Driver, one: &Present, depends: bool) {
        if self.told.is_some_and(|told| told.elapsed() < AGAIN) {
            return;
        }
        let Some(client) = driver.workers().client_in(one.at, one.life) else {
            return;
        };
        self.told = Some(Instant::now());
        let worker = one.id.clone();
        tokio::spawn(async move {
            match client.leave().await {
                Ok(()) => tracing::info!(%worker, depends, "a worker was told to leave"),
                Err(error) => tracing::warn!(%worker, %error, "a worker was not told to leave"),
            }
        });
    }
}

/// Workers that stay, the least busy first.
fn staying<'a>(view: &View, present: &'a [Present]) -> Vec<&'a Present> {
    let usable = present.iter().filter(|one| one.is_usable(view));
    let mut stay: Vec<&Present> = usable.filter(|one| !leaves(view, &one.id)).collect();
    stay.sort_by(|a, b| {
        let by_load = a.info.utilization.total_cmp(&b.info.utilization);
        by_load.then(a.at.cmp(&b.at))
    });
    stay
}

/// Desired variants that serve on workers that are to leave and on none that stays. If no autoscaler has said what is
/// desired, all published variants are desired.
fn alone<'a>(view: &'a View, stay: &[&Present]) -> Vec<SoleInstance<'a>> {
    let staying: BTreeSet<&WorkerId> = stay.iter().map(|one| &one.id).collect();
    let is_desired = |variant: &VariantId| match &view.desired {
        Some(desired) => desired.of(variant).is_some(),
        None => view.variants.contains_key(variant),
    };
    let serving = view
        .instances
        .values()
        .filter(|it| it.state.is_serving() && is_desired(&it.key.variant));
    let (safe, others): (Vec<&Instance>, Vec<&Instance>) =
        serving.partition(|it| staying.contains(&it.key.worker));
    let safe: BTreeSet<&VariantId> = safe.iter().map(|it| &it.key.variant).collect();
    let others = others.into_iter().map(|it| &it.key);
    let alone = others.filter(|key| leaves(view, &key.worker) && !safe.contains(&key.variant));
    let alone = alone.map(|key| SoleInstance {
        variant: &key.variant,
        on: &key.worker,
    });
    alone.collect()
}

/// Whether a worker is to leave.
pub(super) fn leaves(view: &View, worker: &WorkerId) -> bool {
    let desired = view.desired.as_ref();
    desired.is_some_and(|desired| desired.emptying.binary_search(worker).is_ok())
        || view.workers.get(worker).is_some_and(|it| it.leaving)
}

/// Whether more workers of its type are desired than stay, and a provider starts them.
fn lacks_another(view: &View, worker: &Worker) -> bool {
    let name_of = |worker: &Worker| {
        let facts = worker.record.device_type.as_ref();
        facts.map(|facts| facts.name.clone())
    };
    let name = name_of(worker);
    let pool = name
        .as_ref()
        .and_then(|name| view.desired.as_ref()?.pool(name));
    let Some(pool) = pool.filter(|pool| pool.provider.is_some()) else {
        return false;
    };
    let staying = view.workers.values().filter(|it| it.stays());
    let alike = staying.filter(|it| name_of(it) == name);
    alike.count() < pool.desired as usize
}
