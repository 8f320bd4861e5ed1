//! Makes room for models that are measured on the device that serves.
//!
//! Registration loads a model with the engine that serves, and instances may hold all pages of the device. The
//! dispatcher decides what is loaded, but it does not know of the measured model and will never unload anything for it.
//! So the worker does it: the worker reserves free pages, unloads the instance that was used longest ago, and repeats
//! this until the model fits. The worker does not unload an instance on which a batch runs or for which a batch waits.
//! The dispatcher hears of each unload as it hears of any instance that ends.
//!
//! The dispatcher does not count the measured model's pages. So its load may find too few pages although it would fit
//! without that model. For such a load the worker unloads other idle instances; if there are none, it refuses the load
//! for want of memory until the measurement ends.
//!
//! Each wait has a limit: [`BUSY`] for busy instances, [`MEASURED`] for other models that are measured. The time for
//! busy instances starts when there is nothing else to wait for: a caller that has waited for another model may find
//! instances that only that model has kept busy.
//!
//! The worker unloads nothing for a model that needs more pages than the device has.

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

/// Longest wait for busy instances.
const BUSY: Duration = Duration::from_secs(30);

/// Longest wait if the pages of other models that are measured would suffice.
const MEASURED: Duration = Duration::from_secs(300);

/// Longest wait for idle instances when a variant is loaded while a model is measured.
const MADE_UP: Duration = Duration::from_millis(300);

/// An instance that was loaded or used within this time is not unloaded for another variant. Otherwise variants that
/// are in constant use would unload each other without end.
const RECENT: Duration = Duration::from_millis(200);

/// Time between two attempts.
const LOOK: Duration = Duration::from_millis(10);

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRoom {
    /// Batches run on or wait for all that is loaded, or other models are measured. `missing` pages are missing.
    Busy { missing: u64 },
    /// The worker shuts down.
    ShuttingDown,
    /// The caller has stopped waiting.
    Unwanted,
}

impl Worker {
    /// Wraps an engine of this worker for models that are measured on its device. The wrapper makes room for what it
    /// loads and keeps the room while the model exists. `None` if the engine is not one of this worker's, or if its
    /// device is the CPU, whose memory is not divided into pages. `load` of the wrapper blocks and must not be called
    /// on a thread of the runtime.
    ///
    /// A load fails with [`sextant_engine::Error::OutOfMemory`] if the model needs more pages than the device has, and
    /// with [`sextant_engine::Error::Unavailable`] if no room could be made in time.
    ///
    /// # Panics
    /// If it is called outside a runtime.
    pub fn host(&self, engine: &Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        let is_own = self.engines.iter().any(|own| Arc::ptr_eq(own, engine));
        let is_divided = engine.device() != Device::Cpu;
        (is_own && is_divided).then(|| {
            let worker = self.this.clone();
            let host = Host::new(Arc::clone(engine), worker, Handle::current());
            Arc::new(host) as Arc<dyn Engine>
        })
    }

    /// Grows `hold` to `wanted` pages; the device must have that many. Unloads idle instances for it until the caller
    /// drops the other end of `asked`.
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

    /// Unloads idle instances until `variant` fits, if only the pages of measured models are in its way: the dispatcher
    /// does not know of those pages. If too few instances are idle, it waits up to [`MADE_UP`]. It unloads none before
    /// enough of them are idle.
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

    /// Unloads the instance that was used longest ago among those that are idle and were not used within `unused`.
    /// Returns whether there was one. The caller must hold `open` for reading.
    async fn unload_idle(&self, unused: Duration) -> bool {
        // This holds no other instance during the unload: a held instance does not count as idle for other callers.
        let Some((instance, _moving)) = self.idle(unused) else {
            return false;
        };
        let (worker, variant) = (&self.config.worker, &instance.variant.id);
        tracing::info!(%worker, %variant, "unloads it for a model that is measured");
        self.unload_instance(instance, Instance::leave).await;
        self.shared.log.note(ActionKind::Unload, Ok(None));
        true
    }

    /// The instance that was used longest ago among those that are idle and were not used within `unused`, with the
    /// lock to unload it.
    fn idle(&self, unused: Duration) -> Option<(Arc<Instance>, OwnedMutexGuard<()>)> {
        self.unused(unused).into_iter().find_map(|variant| {
            // The lock is taken if the instance is being unloaded already.
            let moving = self.turn(&variant).try_lock_owned().ok()?;
            let instance = self.shared.instance(&variant)?;
            self.is_idle(&instance).then_some((instance, moving))
        })
    }

    /// Pages of the idle instances that were not used within `unused`. Pages that several of them share count once for
    /// each.
    fn idle_pages(&self, unused: Duration) -> u64 {
        let variants = self.unused(unused).into_iter();
        let instances = variants.filter_map(|variant| self.shared.instance(&variant));
        let idle = instances.filter(|instance| self.is_idle(instance));
        idle.map(|instance| instance.pages.pages()).sum()
    }

    /// Variants whose instances were not used within `unused`, in order of last use.
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

    /// Whether no batch runs on an instance or waits for it. The caller must have the only handle beside that of the
    /// table of loaded instances: each batch that has begun has another handle.
    fn is_idle(&self, instance: &Arc<Instance>) -> bool {
        Arc::strong_count(instance) <= 2 && !self.executor.awaits(&instance.variant.id)
    }
}
