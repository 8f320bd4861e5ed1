//! Room for models that are measured on the device that serves.
//!
//! Registration loads a model with the engine that serves, and the device's pages may all be taken by instances. The
//! dispatcher decides what is loaded, but it knows nothing of that model and will never unload anything for it. So the
//! worker does: it keeps free pages from variants, unloads the instance that was used longest ago, and goes on until the
//! model fits. An instance that a batch runs on or waits for stays. Whoever decides about loads hears of it as of any
//! instance that goes. It does not know of the model's pages, so the worker makes up for them: other idle instances go for
//! loads that would fit without it; where there are none, they are refused for want of memory until it is measured.
//!
//! Nobody waits for ever: for instances that are busy for [`BUSY`], for other models that are measured for [`MEASURED`]. The
//! first of these begins when there is nothing else to wait for: whoever has waited for a model finds instances that only it
//! has kept busy.
//! Nothing is unloaded for a model that has more pages than the device.

mod host;

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sextant_engine::{Device, Engine};
use sextant_rpc::ActionKind;
use sextant_types::{Variant, VariantId};
use tokio::{
    runtime::Handle,
    sync::{OwnedMutexGuard, oneshot},
    time::Instant,
};

use self::host::Host;
use crate::{Worker, instance::Instance, ledger::Hold};

/// Longest wait for instances that are busy.
const BUSY: Duration = Duration::from_secs(30);

/// Longest wait where the pages of other models that are measured would do.
const MEASURED: Duration = Duration::from_secs(300);

/// Longest wait for idle instances where a variant is loaded beside what is measured.
const MADE_UP: Duration = Duration::from_millis(300);

/// What was loaded or used within this time does not go for another variant: variants that are wanted all the time would
/// unload each other without end.
const RECENT: Duration = Duration::from_millis(200);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRoom {
    /// Batches run on or wait for everything that is loaded, or other models are measured. So many pages are missing.
    Busy { missing: u64 },
    /// The worker ends.
    ShuttingDown,
    /// Whoever asked for it has gone.
    Unwanted,
}

impl Worker {
    /// An engine that this worker serves with, for models that are measured on the same device: room is made for what it
    /// loads, and kept while the model is alive. `None` where it is no engine of this worker, and where its device is
    /// the processor, whose memory nobody divides. Its `load` blocks and must not be called on a runtime's thread.
    ///
    /// A load fails with [`sextant_engine::Error::OutOfMemory`] where the model has more pages than the device, and with
    /// [`sextant_engine::Error::Unavailable`] where no room could be made in time.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn host(&self, engine: &Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        let is_own = self.engines.iter().any(|own| Arc::ptr_eq(own, engine));
        let is_divided = engine.device() != Device::Cpu;
        (is_own && is_divided).then(|| {
            let worker = self.this.clone();
            let host = Host::new(Arc::clone(engine), worker, Handle::current());
            Arc::new(host) as Arc<dyn Engine>
        })
    }

    /// Lets `hold` grow to `wanted` pages, which the device has. Idle instances go for it, as long as whoever asked for it
    /// keeps the other end of `asked`.
    async fn make_room(
        &self,
        mut hold: Hold,
        wanted: u64,
        mut asked: oneshot::Sender<Infallible>,
    ) -> Result<Hold, NoRoom> {
        let begun = Instant::now();
        let turn = tokio::time::timeout(MEASURED, self.making_room.lock());
        let turn = tokio::select! {
            turn = turn => turn,
            () = asked.closed() => return Err(NoRoom::Unwanted),
        };
        let _turn = turn.map_err(|_| NoRoom::Busy { missing: wanted })?;
        let mut busy_since = None;
        loop {
            if asked.is_closed() {
                return Err(NoRoom::Unwanted);
            }
            let missing = hold.grow(wanted);
            if missing == 0 {
                return Ok(hold);
            }
            let open = self.open.read().await;
            if !*open {
                return Err(NoRoom::ShuttingDown);
            }
            if self.unload_idle(Duration::ZERO).await {
                continue;
            }
            drop(open);
            let measured = self.ledger.kept().saturating_sub(hold.pages());
            let (since, patience) = match measured >= missing {
                true => {
                    busy_since = None;
                    (begun, MEASURED)
                }
                false => (*busy_since.get_or_insert_with(Instant::now), BUSY),
            };
            if since.elapsed() >= patience {
                return Err(NoRoom::Busy { missing });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Unloads idle instances until a variant fits, where nothing but what is measured is in its way. Whoever has it
    /// loaded does not know of those pages. Waits for a moment where too few are idle: until all that must go are, none
    /// goes.
    pub(crate) async fn make_up(&self, variant: &Variant) {
        let begun = Instant::now();
        while let Err(short) = self.ledger.check(variant)
            && short.needed <= short.free.saturating_add(self.ledger.kept())
        {
            let is_enough = short.needed <= short.free.saturating_add(self.idle_pages(RECENT));
            if is_enough && self.unload_idle(RECENT).await {
                continue;
            }
            if begun.elapsed() >= MADE_UP {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Unloads the idle instance that was used longest ago, at least `unused` ago; whether there was one. The caller holds
    /// the worker open.
    async fn unload_idle(&self, unused: Duration) -> bool {
        // No other instance is held while this one goes: it would not count as idle for others.
        let Some((instance, _moving)) = self.idle(unused) else {
            return false;
        };
        let (worker, variant) = (&self.config.worker, &instance.variant.id);
        tracing::info!(%worker, %variant, "unloads it for a model that is measured");
        self.unload_instance(instance, Instance::leave).await;
        self.shared.log.note(ActionKind::Unload, Ok(None));
        true
    }

    /// The idle instance that was used longest ago, at least `unused` ago, and the turn to unload it.
    fn idle(&self, unused: Duration) -> Option<(Arc<Instance>, OwnedMutexGuard<()>)> {
        self.unused(unused).into_iter().find_map(|variant| {
            // One that is being unloaded goes anyway.
            let moving = self.turn(&variant).try_lock_owned().ok()?;
            let instance = self.shared.instance(&variant)?;
            self.is_idle(&instance).then_some((instance, moving))
        })
    }

    /// Pages of the idle instances that were used at least `unused` ago; those that several of them share count for each.
    fn idle_pages(&self, unused: Duration) -> u64 {
        let variants = self.unused(unused).into_iter();
        let instances = variants.filter_map(|variant| self.shared.instance(&variant));
        let idle = instances.filter(|instance| self.is_idle(instance));
        idle.map(|instance| instance.pages.pages()).sum()
    }

    /// Variants whose instances were used at least `unused` ago, those used longest ago first.
    fn unused(&self, unused: Duration) -> Vec<VariantId> {
        let now = self.shared.nanos();
        let least = unused.as_nanos() as u64;
        let used = |instance: &Arc<Instance>| instance.last_used.load(Ordering::Relaxed);
        let instances = self.shared.instances();
        let instances = instances.iter().map(|it| (used(it), it.variant.id.clone()));
        let mut unused: Vec<(u64, VariantId)> = instances
            .filter(|(used, _)| now.saturating_sub(*used) >= least)
            .collect();
        unused.sort();
        unused.into_iter().map(|(_, variant)| variant).collect()
    }

    /// Whether no batch runs on an instance or waits for it. The caller has the only handle beside the one of what is
    /// loaded: every batch that has begun has another.
    fn is_idle(&self, instance: &Arc<Instance>) -> bool {
        Arc::strong_count(instance) <= 2 && !self.executor.awaits(&instance.variant.id)
    }
}
