//! Moves a loaded variant to another process: from the worker's process to one of its own, or back.
//!
//! An administrator may change where the models of an application run while they are loaded. Then the dispatcher sends
//! the variant again, and the worker loads it a second time in the right process. The first instance answers until the
//! second one takes its place. It ends when its last batch has left. Until then both hold their pages. If the device
//! has too few pages, or if the second load fails, the first instance is unloaded all the same: a model that must not
//! run in the worker's process does not go on there.

use std::{sync::Arc, time::Instant};

use sextant_metadata::{Command, Error};
use sextant_rpc::{Load, LoadTimings, WorkError};
use sextant_types::{Variant, time::unix_ms};

use super::{EngineChoice, see_off};
use crate::{Worker, instance::Instance};

impl Worker {
    /// Loads a variant again with another engine. The caller holds the lock of its turn.
    pub(super) async fn replace(
        &self,
        load: &Load,
        chosen: EngineChoice,
        (loaded, arrived): (Arc<Instance>, Instant),
    ) -> Result<LoadTimings, WorkError> {
        let load = &Load {
            latest: None,
            ..load.clone()
        };
        let variant = &load.variant;
        let is_isolated = chosen.is_isolated;
        tracing::info!(variant = %variant.id, is_isolated, "a loaded variant changes its process");
        // In the ledger, instances of one variant share pages, but these two occupy them twice. This hold counts them
        // the second time.
        let mut beside = self.ledger.hold();
        if beside.grow(self.ledger.pages_of(variant)) > 0 {
            drop(beside);
            self.unload_instance(loaded, Instance::leave).await;
            return self.load_anew(load, chosen, arrived).await;
        }
        let opened = self.open_instance(load, chosen, arrived).await;
        let (instance, timings) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.unload_instance(loaded, Instance::leave).await;
                return Err(error);
            }
        };
        self.shared.insert(instance);
        self.discard(&loaded);
        self.renew_record(variant).await;
        see_off(loaded).await;
        Ok(timings)
    }

    /// Renews the record: the condition of the new instance is not known, and the first one may have broken in the
    /// meantime.
    async fn renew_record(&self, variant: &Variant) {
        self.note_given_up().await;
        let corrected = self.correct(&variant.id, &variant.application).await;
        let recover = self.transition(variant, Command::Recover);
        let recovered = match corrected {
            Ok(()) => self.metadata.transition(&recover, unix_ms()).await,
            Err(error) => Err(error),
        };
        match recovered {
            // The record was active already.
            Ok(_) | Err(Error::Rejected(_)) => {}
            Err(error) => {
                tracing::debug!(variant = %variant.id, %error, "an instance's record could not be renewed");
                let (id, application) = (variant.id.clone(), variant.application.clone());
                self.doubtful.add(id, application);
            }
        }
    }
}
