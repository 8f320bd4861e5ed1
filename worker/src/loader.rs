//! Loading and unloading, with the state machine told at each step.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_metadata::{Command, InstanceKey, Transition};
use sextant_rpc::WorkError;
use sextant_types::{Variant, VariantId};

use crate::{Instance, Worker, unix_ms};

/// How long an unload waits for batches that are running.
const DRAIN: Duration = Duration::from_secs(30);

impl Worker {
    pub(crate) async fn load_variant(&self, variant: Arc<Variant>) -> Result<(), WorkError> {
        if self.shared.instance(&variant.id).is_some() {
            return Ok(());
        }
        self.ledger
            .reserve(&variant)
            .map_err(|short| WorkError::NoMemory {
                variant: variant.id.clone(),
                needed: short.needed,
                free: short.free,
                page_bytes: 1,
            })?;
        let loaded = self.load_reserved(&variant).await;
        if let Err(error) = &loaded {
            self.ledger.release(&variant.id);
            let reason = error.to_string();
            if let Err(error) = self.command(&variant, Command::LoadFailed { reason }).await {
                tracing::warn!(variant = %variant.id, %error, "a failed load could not be noted");
            }
        }
        loaded
    }

    async fn load_reserved(&self, variant: &Arc<Variant>) -> Result<(), WorkError> {
        self.command(variant, Command::Load).await?;
        let model = self.open(variant).await?;
        let instance = Instance {
            variant: Arc::clone(variant),
            model,
            rows: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            run_nanos: AtomicU64::new(0),
            expected_nanos: AtomicU64::new(0),
            last_used: AtomicU64::new(self.shared.nanos()),
        };
        self.shared.insert(Arc::new(instance));
        let noted = self.command(variant, Command::Loaded).await;
        if noted.is_err() {
            self.shared.remove(&variant.id);
        }
        noted
    }

    async fn open(&self, variant: &Variant) -> Result<Arc<dyn LoadedModel>, WorkError> {
        let failed = |reason: String| WorkError::Failed {
            variant: variant.id.clone(),
            reason,
        };
        let engine = self
            .engine(variant)
            .ok_or_else(|| failed(format!("no engine `{}` here", variant.spec.engine)))?;
        let model = self
            .objects
            .get_blob(&variant.artefact)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let request = LoadRequest {
            artefact: variant.artefact,
            model,
            precision: variant.spec.precision,
            optimization: variant.spec.optimization,
            threads: variant.spec.threads,
        };
        tokio::task::spawn_blocking(move || engine.load(&request))
            .await
            .map_err(|_| failed("the engine panicked".to_owned()))?
            .map_err(|error| failed(error.to_string()))
    }

    fn engine(&self, variant: &Variant) -> Option<Arc<dyn Engine>> {
        self.engines
            .iter()
            .find(|engine| engine.name() == variant.spec.engine.0)
            .cloned()
    }

    pub(crate) async fn unload_variant(&self, variant: &VariantId) -> Result<(), WorkError> {
        let Some(instance) = self.shared.instance(variant) else {
            return Ok(());
        };
        self.command(&instance.variant, Command::Drain).await?;
        self.shared.remove(variant);
        let variant_record = Arc::clone(&instance.variant);
        self.drained(instance).await;
        self.ledger.release(variant);
        self.command(&variant_record, Command::Unloaded).await
    }

    /// Waits until no running batch holds the instance.
    async fn drained(&self, instance: Arc<Instance>) {
        let weak = Arc::downgrade(&instance);
        drop(instance);
        let gone = async {
            while weak.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(DRAIN, gone).await.is_err() {
            tracing::warn!("a batch is still running on an unloaded variant");
        }
    }

    /// Applies a command to this worker's instance of `variant`.
    pub(crate) async fn command(
        &self,
        variant: &Variant,
        command: Command,
    ) -> Result<(), WorkError> {
        let transition = Transition {
            key: InstanceKey::new(variant.id.clone(), self.config.worker.clone()),
            application: variant.application.clone(),
            expected_version: None,
            command,
        };
        self.metadata
            .transition(&transition, unix_ms())
            .await
            .map(|_| ())
            .map_err(|error| WorkError::Rejected(error.to_string()))
    }

    /// Records again what is loaded, after the lease had lapsed.
    pub(crate) async fn announce(&self) {
        for instance in self.shared.instances() {
            for command in [Command::Load, Command::Loaded] {
                if let Err(error) = self.command(&instance.variant, command).await {
                    tracing::warn!(variant = %instance.variant.id, %error, "not announced");
                }
            }
        }
    }

    /// Unloads everything and refuses new batches.
    pub(crate) async fn stop(&self) {
        self.executor.close();
        for instance in self.shared.instances() {
            let variant = instance.variant.id.clone();
            drop(instance);
            if let Err(error) = self.unload_variant(&variant).await {
                tracing::warn!(%variant, %error, "an instance could not be unloaded");
            }
        }
    }
}
