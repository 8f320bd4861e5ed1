//! A separate fleet on this machine's engine.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bollard::{
    API_DEFAULT_VERSION, Docker,
    models::ContainerSummary,
    query_parameters::{
        KillContainerOptions, ListContainersOptionsBuilder, LogsOptionsBuilder,
        RemoveContainerOptionsBuilder,
    },
};
use futures::TryStreamExt;
use sextant_provider::{
    Machine, MachineId, Pool, Provider,
    conformance::{DEADLINE, Ground, MACHINE},
};
use sextant_provider_docker::{Containers, SOCKET, Settings, Template};
use sextant_types::DeviceTypeName;
use uuid::Uuid;

use super::image;

pub const LONG_MS: u64 = 600_000;

pub struct Fleet {
    pub name: String,
    pub client: Docker,
}

impl Fleet {
    /// `None`, with a printed line, if no engine answers.
    pub async fn new() -> Option<Self> {
        let client = match connect().await {
            Ok(client) => client,
            Err(reason) => {
                // This bypasses the capture of the output of successful tests.
                let mut output = std::io::stderr();
                writeln!(
                    output,
                    "skipped: no Docker engine answers on `{SOCKET}`: {reason}"
                )
                .ok();
                return None;
            }
        };
        image::ensure(&client).await;
        let name = format!("test-{}", Uuid::new_v4());
        Some(Self { name, client })
    }

    pub fn settings(&self) -> Settings {
        settings(Path::new(SOCKET), &self.name)
    }

    pub fn open(&self) -> Containers {
        Containers::new(self.settings())
    }

    /// All containers of the fleet, including those that have ended.
    pub async fn containers(&self) -> Vec<ContainerSummary> {
        containers(&self.client, &self.name).await
    }

    /// The output of the machine.
    pub async fn log(&self, machine: &MachineId) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).build();
        let log = self.client.logs(&machine.0, Some(options)).try_collect();
        let lines: Vec<_> = log.await.unwrap_or_default();
        lines.iter().map(ToString::to_string).collect()
    }

    /// Grows the pool and returns its machines once they are up.
    pub async fn up(&self, provider: &Containers, pool: &Pool, count: u32) -> Vec<Machine> {
        provider.grow(pool, count).await.expect("grow");
        let machines = provider.list(pool).await.expect("list");
        assert_eq!(machines.len(), count as usize);
        for machine in &machines {
            until("it is up", async || self.is_up(&machine.id).await).await;
        }
        machines
    }
}

/// Removes what a test has left.
impl Drop for Fleet {
    fn drop(&mut self) {
        let name = self.name.clone();
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let Ok(client) = connect().await else {
                    return;
                };
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true);
                for container in containers(&client, &name).await {
                    let id = container.id.unwrap_or_default();
                    client
                        .remove_container(&id, Some(options.clone().build()))
                        .await
                        .ok();
                }
            });
        });
        cleaner.join().ok();
    }
}

#[async_trait]
impl Ground for Fleet {
    async fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.open())
    }

    fn pool(&self, name: &str, end_ms: u64) -> Pool {
        pool(name, end_ms)
    }

    async fn is_up(&self, machine: &MachineId) -> bool {
        self.log(machine).await.contains("up")
    }

    async fn crash(&self, machine: &MachineId) {
        let kill = self
            .client
            .kill_container(&machine.0, None::<KillContainerOptions>);
        kill.await.expect("it is killed");
    }
}

async fn connect() -> Result<Docker, String> {
    let client = Docker::connect_with_unix(SOCKET, 60, API_DEFAULT_VERSION);
    let client = client.map_err(|error| error.to_string())?;
    let client = client.negotiate_version().await;
    client.map_err(|error| error.to_string())
}

async fn containers(client: &Docker, fleet: &str) -> Vec<ContainerSummary> {
    let filters = HashMap::from([("label", vec![format!("sextant.fleet={fleet}")])]);
    let options = ListContainersOptionsBuilder::new()
        .all(true)
        .filters(&filters);
    let listed = client.list_containers(Some(options.build())).await;
    listed.expect("the containers")
}

pub fn settings(socket: &Path, fleet: &str) -> Settings {
    Settings {
        socket: socket.to_owned(),
        fleet: fleet.to_owned(),
        most: 8,
        timeout_ms: 60_000,
        template: template(MACHINE),
        pools: BTreeMap::new(),
    }
}

pub fn template(script: &str) -> Template {
    Template {
        image: image::IMAGE.to_owned(),
        command: ["/bin/sh", "-c", script, "{pool}", "{name}"]
            .map(str::to_owned)
            .into(),
        network: Some("none".to_owned()),
        ..Template::default()
    }
}

pub fn pool(name: &str, end_ms: u64) -> Pool {
    let device_type = DeviceTypeName::new(name).expect("a name");
    Pool {
        device_type,
        end_ms,
    }
}

pub async fn until(what: &str, mut seen: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !seen().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
