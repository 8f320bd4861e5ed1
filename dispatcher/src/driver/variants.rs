//! Variants that are published, loaded, unloaded and retired.

use std::sync::Arc;

use sextant_policies::placement::ResidentModel;
use sextant_rpc::{Load, WorkerInfo};
use sextant_types::Variant;

use super::{Driver, Touched};
use crate::mover::{Move, Moved};

impl Driver {
    /// A variant is published, or published anew; `eligible` are the workers that have its engine.
    pub(crate) fn on_variant(
        &self,
        model: u32,
        variant: &Arc<Variant>,
        spec: ResidentModel,
        eligible: Vec<u32>,
    ) {
        self.movers.know(model, variant);
        self.step(Touched::Everything, |core, now, actions| {
            core.know(now, model, spec, eligible, actions);
            self.gauges.set_excess(model, core.excess(model));
        });
    }

    /// Workers have come: these are the ones that have a variant's engine.
    pub(crate) fn on_eligible(&self, model: u32, eligible: Vec<u32>) {
        self.step(Touched::Nothing, |core, now, _| {
            core.set_eligible(now, model, eligible);
        });
    }

    /// A batch of a variant occupies so many slots from now on.
    pub(crate) fn set_slots(&self, model: u32, slots: u16) {
        self.step(Touched::Queue(model), |core, now, actions| {
            core.set_slots(now, model, slots, actions);
        });
    }

    /// A variant may not be asked for any more.
    pub(crate) fn on_retired(&self, model: u32) {
        self.step(Touched::Everything, |core, now, actions| {
            core.retire(now, model, actions);
        });
    }

    /// The worker at position `at` serves `model`.
    pub(crate) fn on_loaded(&self, at: usize, model: u32) {
        self.step(Touched::Everything, |core, now, actions| {
            core.loaded(now, (at as u32, model), actions);
            self.gauges.set_excess(model, core.excess(model));
        });
    }

    /// The worker at position `at` serves `model` no longer.
    pub(crate) fn on_unloaded(&self, at: usize, model: u32) {
        self.step(Touched::Everything, |core, now, actions| {
            core.unloaded(now, (at as u32, model), actions);
            self.gauges.set_excess(model, core.excess(model));
        });
    }

    /// What came of a LOAD or UNLOAD at the worker at position `at`.
    pub(super) fn on_moved(&self, at: usize, moved: Moved) {
        match moved {
            Moved::Loaded { model } => self.on_loaded(at, model),
            Moved::Unloaded { model } => self.on_unloaded(at, model),
            Moved::LoadFailed { model } => {
                self.step(Touched::Everything, |core, now, actions| {
                    core.load_failed(now, (at as u32, model), actions);
                });
            }
        }
    }

    /// Has a variant loaded that no waiting query needs, where there is most room; nothing is
    /// unloaded for it.
    pub(crate) fn warm(&self, model: u32) {
        let Some(variant) = self.movers.begin_warming(model) else {
            return;
        };
        let room = |info: WorkerInfo| {
            let runs = info.engines.contains(&variant.spec.engine);
            runs.then(|| info.pages.free.saturating_mul(info.pages.page_bytes))
        };
        let members = self.workers.load();
        let clients = members.iter().enumerate().filter_map(|(at, member)| {
            let client = member.client.as_ref()?;
            self.movers.serves(at).then_some((at, client))
        });
        let most = clients
            .filter_map(|(at, client)| Some((room(client.info())?, at)))
            .max_by_key(|(room, at)| (*room, std::cmp::Reverse(*at)));
        match most {
            Some((_, at)) => {
                let load = Load::at_once(variant);
                self.movers.send(at, Move::Load { model, load });
            }
            None => self.movers.end_warming(model),
        }
    }

    /// Why the last LOAD of a variant failed, if it did.
    pub(crate) fn load_failure(&self, model: u32) -> Option<String> {
        self.movers.failure(model)
    }
}
