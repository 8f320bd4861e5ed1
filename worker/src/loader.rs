//! Loading and unloading of variants. Each step is reported to the state machine.

pub(crate) mod records;
mod replace;
pub(crate) mod turns;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Interrupt, LoadRequest, ModelFile};
use sextant_metadata::{Command, InstanceKey, Transition};
use sextant_objects::Error as ObjectError;
use sextant_rpc::{ActionKind, Load, LoadTimings, WorkError};
use sextant_types::{Variant, VariantId};
use tokio::sync::oneshot;

use self::turns::{LoadResult, Turn, no_memory};
use crate::{Worker, instance::Instance, log::Action};

/// Longest time for which an unload waits for running batches.
const DRAIN: Duration = Duration::from_secs(30);

/// The engine with which a variant is loaded.
struct EngineChoice {
    engine: Arc<dyn Engine>,
    /// Whether the engine runs the variant in a process of its own. An engine that does not support this, such as that
    /// of GPUs, runs the variant in the worker's process whatever the policy says.
    is_isolated: bool,
}

fn request_for(variant: &Variant, model: ModelFile) -> LoadRequest {
    LoadRequest {
        artefact: variant.artefact,
        model,
        precision: variant.spec.precision,
        optimization: variant.spec.optimization,
        threads: variant.spec.threads,
    }
}

impl Worker {
    /// Loads a variant and notes the result.
    pub(crate) async fn load_noted(&self, load: Load) -> Result<LoadTimings, WorkError> {
        let arrived = Instant::now();
        let (earliest, expected) = (load.earliest.max(arrived), load.expected);
        let loaded = self.load_variant(load, arrived).await;
        let note = match &loaded {
            // Nothing was done: the variant was loaded already.
            Ok(timings) if timings.load_us == 0.0 => Ok(None),
            Ok(timings) => Ok(Some(Action {
                expected,
                // The expected duration covers both.
                actual: Duration::try_from_secs_f64((timings.fetch_us + timings.load_us) / 1e6)
                    .unwrap_or_default(),
                earliest,
                ended: Instant::now(),
            })),
            Err(error) => Err(error.code()),
        };
        self.shared.log.note(ActionKind::Load, note);
        loaded
    }

    async fn load_variant(&self, load: Load, arrived: Instant) -> Result<LoadTimings, WorkError> {
        if load.earliest > arrived + self.config.horizon {
            return Err(WorkError::TooEarly);
        }
        let open = self.open.read().await;
        if !*open {
            return Err(WorkError::ShuttingDown);
        }
        let turn = self.turn(&load.variant.id);
        let _turn = turn.lock().await;
        self.note_given_up().await;
        let now = Instant::now();
        let loaded = self.shared.instance(&load.variant.id);
        if loaded.is_none() && load.latest.is_some_and(|latest| now > latest) {
            return Err(WorkError::TooLate);
        }
        let chosen = self.engine(&load.variant)?;
        match loaded {
            // The instance is of a deleted model, whose name another model has now. Its outputs must not answer
            // anybody.
            Some(loaded) if loaded.variant.artefact != load.variant.artefact => {
                self.unload_instance(loaded, Instance::void).await;
                let load = Load {
                    latest: None,
                    ..load
                };
                self.load_anew(&load, chosen, arrived).await
            }
            Some(loaded) if loaded.is_isolated == chosen.is_isolated => {
                // Whoever sends it may not see that it is here.
                let application = load.variant.application.clone();
                self.doubtful.add(load.variant.id.clone(), application);
                Ok(LoadTimings::default())
            }
            Some(loaded) => self.replace(&load, chosen, (loaded, arrived)).await,
            None => self.load_anew(&load, chosen, arrived).await,
        }
    }

    /// Loads a variant that is not loaded. The caller holds the lock of its turn.
    async fn load_anew(
        &self,
        load: &Load,
        chosen: EngineChoice,
        arrived: Instant,
    ) -> Result<LoadTimings, WorkError> {
        if load.earliest <= Instant::now() {
            // The same check runs again when the load begins. Here it avoids fetching the artefact for a load that
            // would be refused.
            self.make_up(&load.variant).await;
            let room = self.ledger.check(&load.variant);
            room.map_err(|short| no_memory(&load.variant, short, &self.ledger))?;
        }
        let noted = self.note_loading(&load.variant).await;
        noted.map_err(|error| WorkError::Rejected(error.to_string()))?;
        let loaded = self.load_begun(load, chosen, arrived).await;
        if let Err(error) = &loaded {
            self.note_load_failed(&load.variant, error).await;
        }
        loaded
    }

    async fn load_begun(
        &self,
        load: &Load,
        chosen: EngineChoice,
        arrived: Instant,
    ) -> Result<LoadTimings, WorkError> {
        let (instance, timings) = self.open_instance(load, chosen, arrived).await?;
        self.shared.insert(Arc::clone(&instance));
        self.executor.loaded(&load.variant.id);
        if let Err(error) = self.command(&load.variant, Command::Loaded).await {
            self.discard(&instance);
            return Err(error);
        }
        Ok(timings)
    }

    /// Makes an instance that is not in the table yet.
    async fn open_instance(
        &self,
        load: &Load,
        chosen: EngineChoice,
        arrived: Instant,
    ) -> Result<(Arc<Instance>, LoadTimings), WorkError> {
        let variant = &load.variant;
        let fetching = Instant::now();
        let is_prepared = || {
            let precision = variant.spec.precision;
            chosen.engine.has_prepared(&variant.artefact, precision)
        };
        let needs_file = !is_prepared();
        let request = match needs_file {
            true => self.fetch(variant, &chosen).await?,
            false => request_for(variant, ModelFile::absent()),
        };
        let mut fetched = fetching.elapsed();
        let engine = || Arc::clone(&chosen.engine);
        let mut opened = self.open_in_turn(load, engine(), request, fetched).await;
        if matches!(opened, Err(WorkError::Failed { .. })) && !needs_file && !is_prepared() {
            // The engine had dropped what it kept of the model meanwhile.
            let request = self.fetch(variant, &chosen).await?;
            fetched = fetching.elapsed();
            opened = self.open_in_turn(load, engine(), request, fetched).await;
        }
        let (opened, began) = opened?;
        let timings = LoadTimings {
            queue_us: us(began
                .saturating_duration_since(arrived)
                .saturating_sub(fetched)),
            fetch_us: us(fetched),
            load_us: us(opened.took),
        };
        let nanos = self.shared.nanos();
        let on = self.config.device_type.as_ref().map(|of| &of.name);
        let of = (Arc::clone(variant), on);
        let mut instance = Instance::new(of, opened.model, opened.pages, nanos);
        instance.is_isolated = chosen.is_isolated;
        Ok((Arc::new(instance), timings))
    }

    /// Fetches the artefact; the store has checked its bytes against its digest.
    async fn fetch(
        &self,
        variant: &Variant,
        chosen: &EngineChoice,
    ) -> Result<LoadRequest, WorkError> {
        let fetched = self.artefact(variant, chosen).await;
        let model = fetched.map_err(|error| match error {
            FetchFailure::Store(ObjectError::NotFound { .. }) => WorkError::Unknown {
                variant: variant.id.clone(),
                reason: error.to_string(),
            },
            error => WorkError::Failed {
                variant: variant.id.clone(),
                reason: with_causes(&error),
            },
        })?;
        Ok(request_for(variant, model))
    }

    /// The artefact's file. The weights of a large file stay where the store has them. Nothing is read of a file that a
    /// process of its own will read.
    async fn artefact(
        &self,
        variant: &Variant,
        chosen: &EngineChoice,
    ) -> Result<ModelFile, FetchFailure> {
        let objects = &self.objects;
        if variant.profile.weights_bytes >= self.config.map_from_bytes
            && let Some(scratch) = objects.scratch()
            && let Some(file) = objects.blob_file(&variant.artefact).await?
        {
            let opened_by = match chosen.is_isolated {
                true => ModelFile::linked,
                false => ModelFile::open,
            };
            let open = move || opened_by(&file, &scratch);
            match tokio::task::spawn_blocking(open).await? {
                // For example, a file system without hard links.
                Err(sextant_engine::Error::Failed(reason)) => {
                    tracing::warn!(variant = %variant.id, reason, "a large model is read into memory");
                }
                opened => return Ok(opened?),
            }
        }
        Ok(objects.get_blob(&variant.artefact).await?.into())
    }

    /// Waits for the LOAD thread, but at most the time limit of a load from the load's begin on. The expected duration
    /// of a load includes the fetching of the artefact: that time does not count as a late start.
    async fn open_in_turn(
        &self,
        load: &Load,
        engine: Arc<dyn Engine>,
        request: LoadRequest,
        fetched: Duration,
    ) -> Result<(LoadResult, Instant), WorkError> {
        let (began_sender, began) = oneshot::channel();
        let (reply, opened) = oneshot::channel();
        let interrupt = Interrupt::default();
        self.turns.push(Turn {
            interrupt: interrupt.clone(),
            variant: Arc::clone(&load.variant),
            engine,
            request,
            ledger: Arc::clone(&self.ledger),
            earliest: load.earliest,
            latest: load.latest.and_then(|latest| latest.checked_add(fetched)),
            began: began_sender,
            reply,
        });
        // If the load was refused, the channel closes without a message; the reply has the error.
        let began = began.await.unwrap_or_else(|_| Instant::now());
        let profiled = Duration::try_from_secs_f64(load.variant.profile.first_ms() / 1e3);
        let expected = load.expected.max(profiled.unwrap_or_default());
        let limit = self.config.watchdog.load_limit(expected);
        let failed = |reason: String| WorkError::Failed {
            variant: load.variant.id.clone(),
            reason,
        };
        match tokio::time::timeout(limit, opened).await {
            Ok(Ok(opened)) => Ok((opened?, began)),
            Ok(Err(_)) => Err(failed("the worker lost the load".to_owned())),
            Err(_) => {
                interrupt.raise();
                self.turns.give_up();
                let limit_ms = limit.as_millis();
                Err(failed(format!(
                    "the engine has not come back for `{limit_ms}` ms"
                )))
            }
        }
    }

    fn engine(&self, variant: &Variant) -> Result<EngineChoice, WorkError> {
        let name = &variant.spec.engine;
        let known = self.engines.iter().find(|engine| engine.name() == name.0);
        let engine = known.ok_or_else(|| WorkError::Unknown {
            variant: variant.id.clone(),
            reason: format!("this worker has no engine `{name}`"),
        })?;
        let isolated = self.config.isolated.has(variant);
        let isolated = isolated.then(|| engine.isolated()).flatten();
        let is_isolated = isolated.is_some();
        Ok(EngineChoice {
            engine: isolated.unwrap_or_else(|| Arc::clone(engine)),
            is_isolated,
        })
    }

    async fn note_load_failed(&self, variant: &Variant, error: &WorkError) {
        let reason = error.to_string();
        let mut commands = vec![Command::LoadFailed { reason }];
        // A load that failed for want of room or time breaks nothing: the variant is not loaded.
        if !matches!(error, WorkError::Failed { .. } | WorkError::Unknown { .. }) {
            commands.push(Command::Unloaded);
        }
        for command in commands {
            if let Err(error) = self.command(variant, command).await {
                tracing::warn!(variant = %variant.id, %error, "a failed load could not be noted");
            }
        }
    }

    /// Unloads a variant. The outputs of its running batches are void. Succeeds whatever the state machine answers: the
    /// memory is given back.
    pub(crate) async fn unload_variant(&self, variant: &VariantId) {
        let turn = self.turn(variant);
        let _turn = turn.lock().await;
        self.note_given_up().await;
        if let Some(instance) = self.shared.instance(variant) {
            self.unload_instance(instance, Instance::void).await;
        }
    }

    /// Unloads an instance. `end` says what happens to its running batches.
    pub(crate) async fn unload_instance(&self, instance: Arc<Instance>, end: fn(&Instance)) {
        let variant = Arc::clone(&instance.variant);
        self.note(&variant, Command::Drain).await;
        end(&instance);
        self.discard(&instance);
        see_off(instance).await;
        self.note(&variant, Command::Unloaded).await;
    }

    /// Removes an instance from the table, and makes waiting batches drop it.
    fn discard(&self, instance: &Arc<Instance>) {
        instance.leave();
        self.shared.remove(instance);
        self.executor.unstage(instance);
    }

    async fn note(&self, variant: &Variant, command: Command) {
        if let Err(error) = self.command(variant, command).await {
            tracing::warn!(variant = %variant.id, %error, "an instance's state was not noted");
        }
    }

    /// Reports broken instances to the state machine.
    pub(crate) async fn note_given_up(&self) {
        for given_up in self.shared.take_given_up() {
            let reason = given_up.reason;
            self.note(&given_up.variant, Command::Fail { reason }).await;
        }
    }

    /// A command for this worker's instance of `variant`.
    pub(crate) fn transition(&self, variant: &Variant, command: Command) -> Transition {
        Transition {
            key: InstanceKey::new(variant.id.clone(), self.config.worker.clone()),
            application: variant.application.clone(),
            expected_version: None,
            command,
        }
    }

    /// Applies a command to this worker's instance of `variant`.
    pub(crate) async fn command(
        &self,
        variant: &Variant,
        command: Command,
    ) -> Result<(), WorkError> {
        let told = self.tell(variant, command).await;
        told.map_err(|error| WorkError::Rejected(error.to_string()))
    }

    /// Records the loaded variants again after the lease had lapsed.
    pub(crate) async fn announce(&self) {
        // The instances are not held meanwhile: a held instance does not count as idle.
        let instances = self.shared.instances().into_iter();
        let variants: Vec<Arc<Variant>> = instances.map(|it| Arc::clone(&it.variant)).collect();
        let is_loaded = |variant: &Variant| self.shared.instance(&variant.id).is_some();
        for variant in variants.into_iter().filter(|it| is_loaded(it)) {
            for command in [Command::Load, Command::Loaded] {
                self.note(&variant, command).await;
            }
            // If it was unloaded meanwhile, its last report may have come before this one.
            if !is_loaded(&variant) {
                let application = variant.application.clone();
                self.doubtful.add(variant.id.clone(), application);
            }
        }
    }

    /// Refuses new batches and loads, finishes those that have begun and unloads everything.
    pub(crate) async fn stop(&self) {
        self.executor.close();
        self.turns.close();
        // Waits until the last load that has begun has ended.
        *self.open.write().await = false;
        self.note_given_up().await;
        for instance in self.shared.instances() {
            self.unload_instance(instance, Instance::leave).await;
        }
    }

    /// The lock that a load or unload of the variant holds.
    pub(crate) fn turn(&self, variant: &VariantId) -> Arc<tokio::sync::Mutex<()>> {
        let made = self.moving.get_or_make(variant.clone(), || {
            Ok::<_, std::convert::Infallible>(tokio::sync::Mutex::new(()))
        });
        match made {
            Ok(turn) => turn,
            Err(never) => match never {},
        }
    }
}

/// Waits for the running batches of an instance that is no longer in the table.
async fn see_off(instance: Arc<Instance>) {
    let variant = Arc::clone(&instance.variant);
    let gone = instance.gone();
    drop(instance);
    if let Some(gone) = gone
        && tokio::time::timeout(DRAIN, gone).await.is_err()
    {
        tracing::warn!(variant = %variant.id, "a batch still runs on an unloaded variant");
    }
}

/// Why there is no file to load.
#[derive(Debug, thiserror::Error)]
enum FetchFailure {
    #[error(transparent)]
    Store(#[from] ObjectError),
    #[error(transparent)]
    File(#[from] sextant_engine::Error),
    #[error("the file of the model cannot be opened")]
    Lost(#[from] tokio::task::JoinError),
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The text of an error and of its sources, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
