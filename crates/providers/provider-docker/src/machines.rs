//! The three calls, and the tasks beside them.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::Arc,
    time::Duration,
};

use bollard::{
    body_full,
    query_parameters::{
        CreateContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
        RenameContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
        UploadToContainerOptionsBuilder,
    },
};
use parking_lot::Mutex;
use sextant_provider::{Error, Machine, MachineId, Pool};
use sextant_types::{DeviceTypeName, time::unix_ms};

use crate::{
    Settings, Template,
    container::{Container, LABEL_FLEET, Life, ending_name},
    engine::{Engine, Fault},
    template,
};

/// The containers of a fleet.
pub(crate) struct Machines {
    settings: Settings,
    engine: Engine,
    /// Lets one call run at a time.
    turn: tokio::sync::Mutex<()>,
    /// Containers that a task is ending or removing.
    leaving: Mutex<BTreeSet<String>>,
}

// === impl Machines ===

impl Machines {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(&settings),
            settings,
            turn: tokio::sync::Mutex::default(),
            leaving: Mutex::default(),
        }
    }

    pub(crate) async fn list(self: &Arc<Self>, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let _turn = self.turn.lock().await;
        let there = self.look().await?;
        let own = there.iter().filter(|it| it.is_of(&pool.device_type));
        Ok(own.map(Container::machine).collect())
    }

    pub(crate) async fn grow(self: &Arc<Self>, pool: &Pool, count: u32) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let there = self.look().await?;
        let pool = &pool.device_type;
        let own = there.iter().filter(|it| it.is_of(pool) && it.stays());
        let own: Vec<_> = own.collect();
        for made in own.iter().filter(|it| it.life == Life::Made) {
            let files = template::archive(self.template(pool), pool)?;
            self.start(&made.id, &made.name, files).await?;
        }
        let missing = (count as usize).saturating_sub(own.len());
        let room = (self.settings.most as usize).saturating_sub(there.len());
        if room < missing {
            let most = self.settings.most;
            tracing::warn!(%pool, missing, room, most, "no room for machines");
        }
        for _ in 0..missing.min(room) {
            self.make(pool).await?;
        }
        Ok(())
    }

    pub(crate) async fn end(self: &Arc<Self>, pool: &Pool, ids: &[MachineId]) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let by_ms = unix_ms().saturating_add(pool.end_ms);
        for container in self.look().await? {
            let named = ids.iter().any(|id| id.0 == container.name);
            if named && container.is_of(&pool.device_type) && container.stays() {
                self.mark(&container, by_ms).await?;
                self.leave(
                    container.id.clone(),
                    Arc::clone(self).stop(container, by_ms),
                );
            }
        }
        Ok(())
    }

    /// The fleet's present containers, sorted by name. Ends the containers that are to end and that no task ends, and
    /// removes those that have ended.
    async fn look(self: &Arc<Self>) -> Result<Vec<Container>, Error> {
        let mut there = Vec::new();
        for container in self.containers().await? {
            match (container.life, container.ending_by_ms) {
                (Life::Ended, None) => {
                    tracing::info!(machine = container.name, "it ended: {}", container.status);
                    self.leave(container.id.clone(), Arc::clone(self).remove(container));
                }
                (Life::Made | Life::Runs | Life::Ended, Some(by_ms)) => {
                    let stop = Arc::clone(self).stop(container.clone(), by_ms);
                    self.leave(container.id.clone(), stop);
                    there.extend(container.is_there().then_some(container));
                }
                (Life::Made | Life::Runs, None) => there.push(container),
                (Life::Leaves, _) => {}
            }
        }
        there.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(there)
    }

    async fn containers(&self) -> Result<Vec<Container>, Error> {
        let label = format!("{LABEL_FLEET}={}", self.settings.fleet);
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters);
        let list = async {
            let client = self.engine.client().await?;
            let list = client.list_containers(Some(options.build()));
            self.engine.answer(list).await
        };
        let listed = list
            .await
            .map_err(|fault| self.engine.error("containers", fault))?;
        Ok(listed.into_iter().filter_map(Container::read).collect())
    }

    /// Creates a container and starts it.
    async fn make(&self, pool: &DeviceTypeName) -> Result<(), Error> {
        let name = template::name(pool)?;
        let template = self.template(pool);
        let files = template::archive(template, pool)?;
        let body = template::body(template, &self.settings.fleet, pool, &name);
        let options = CreateContainerOptionsBuilder::new().name(name.as_str());
        let made = async {
            let client = self.engine.client().await?;
            let make = client.create_container(Some(options.build()), body);
            self.engine.answer(make).await
        };
        let made = made
            .await
            .map_err(|fault| self.not_made(pool, template, fault))?;
        self.start(&made.id, name.as_str(), files).await
    }

    fn template(&self, pool: &DeviceTypeName) -> &Template {
        let own = self.settings.pools.get(pool);
        own.unwrap_or(&self.settings.template)
    }

    fn not_made(&self, pool: &DeviceTypeName, template: &Template, fault: Fault) -> Error {
        let image = &template.image;
        match fault {
            fault if fault.is_gone() => Error::Settings {
                pool: pool.clone(),
                reason: format!(
                    "the engine has no image `{image}`: pull it there, or name another"
                ),
            },
            fault => self
                .engine
                .error(&format!("a container of `{image}`"), fault),
        }
    }

    /// Starts a container with its files. If the engine refuses, the container is removed. If the engine does not
    /// answer, the container stays for the next call.
    async fn start(&self, id: &str, name: &str, files: Option<Vec<u8>>) -> Result<(), Error> {
        let start = async {
            let client = self.engine.client().await?;
            if let Some(files) = files {
                let options = UploadToContainerOptionsBuilder::new().path("/").build();
                let files = body_full(files.into());
                let upload = client.upload_to_container(id, Some(options), files);
                self.engine.answer(upload).await?;
            }
            let start = client.start_container(id, None::<StartContainerOptions>);
            self.engine.answer(start).await
        };
        let Err(fault) = start.await else {
            return Ok(());
        };
        if !matches!(fault, Fault::Away(_))
            && let Err(fault) = self.try_remove(id).await
        {
            tracing::warn!(machine = name, "it could not be removed: {fault:?}");
        }
        Err(self.engine.error(&format!("start of `{name}`"), fault))
    }

    /// Renames a container to mark that it is to end.
    async fn mark(&self, container: &Container, by_ms: u64) -> Result<(), Error> {
        let name = ending_name(&container.name, by_ms);
        let options = RenameContainerOptionsBuilder::new().name(&name).build();
        let renamed = async {
            let client = self.engine.client().await?;
            let rename = client.rename_container(&container.id, options);
            self.engine.answer(rename).await
        };
        match renamed.await {
            Err(fault) if !fault.is_gone() => Err(self
                .engine
                .error(&format!("end of `{}`", container.name), fault)),
            _ => Ok(()),
        }
    }

    /// Runs a task that ends or removes a container, unless one runs already. The next call repeats what fails.
    fn leave(
        self: &Arc<Self>,
        id: String,
        task: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) {
        let machines = Arc::clone(self);
        let begun = machines.leaving(|leaving| leaving.insert(id.clone()));
        if begun {
            tokio::spawn(async move {
                if let Err(error) = task.await {
                    tracing::warn!("a container is not gone yet: {error}");
                }
                machines.leaving(|leaving| leaving.remove(&id));
            });
        }
    }

    fn leaving<T>(&self, change: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        change(&mut self.leaving.lock())
    }

    /// Asks a container to end, makes the engine end it at its time, and removes it.
    async fn stop(self: Arc<Self>, container: Container, by_ms: u64) -> Result<(), Error> {
        let left_ms = by_ms.saturating_sub(unix_ms());
        // The engine counts in seconds; the time is rounded up.
        let left_s = i32::try_from(left_ms.div_ceil(1000)).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(left_s).build();
        let stopped = async {
            let client = self.engine.client().await?;
            let stop = client.stop_container(&container.id, Some(options));
            let after = Duration::from_secs(left_s.unsigned_abs().into());
            self.engine.answer_after(after, stop).await
        };
        match stopped.await {
            Err(fault) if fault.is_gone() => Ok(()),
            Err(fault) => Err(self
                .engine
                .error(&format!("end of `{}`", container.name), fault)),
            Ok(()) => self.remove(container).await,
        }
    }

    async fn remove(self: Arc<Self>, container: Container) -> Result<(), Error> {
        let removed = self.try_remove(&container.id).await;
        removed.map_err(|fault| {
            self.engine
                .error(&format!("removal of `{}`", container.name), fault)
        })
    }

    /// Removes a container with its anonymous volumes.
    async fn try_remove(&self, id: &str) -> Result<(), Fault> {
        let options = RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        let client = self.engine.client().await?;
        let removed = self
            .engine
            .answer(client.remove_container(id, Some(options)))
            .await;
        match removed {
            Err(fault) if !fault.is_gone() && !fault.is_conflict() => Err(fault),
            _ => Ok(()),
        }
    }
}
