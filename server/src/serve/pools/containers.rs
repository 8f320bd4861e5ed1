//! Pools of containers of a Docker engine, each container with a worker.
//!
//! A container reads its settings from a file, which it gets before it starts: tables such as prices cannot be
//! variables, and everybody who may list containers can read variables. Only the credentials for S3 are variables,
//! because no setting exists for them.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use anyhow::{Context, ensure};
use sextant_provider_docker::{Containers, Content, Limits, Settings, Template};
use sextant_types::DeviceTypeName;
use toml::{Table, Value};

use super::inherited;
use sextant_config::{AuthMode, Config, Pool, ProviderKind, Role};

/// Most containers of all pools together.
const MOST: u32 = 1024;

/// Longest time that the engine may take for an answer, ms.
const TIMEOUT_MS: u64 = 30_000;

/// Where a container's worker is reached by the others of its network.
const PORT: u16 = 7070;

/// Where a container answers what looks after it: health and metrics.
const WATCHED_PORT: u16 = 8080;

/// The folder of what a container is given.
const FOLDER: &str = "/etc/sextant";

/// Sections of this process's settings that its workers have, too.
const SHARED: [&str; 8] = [
    "log", "metadata", "objects", "fleet", "auth", "worker", "prices", "limits",
];

/// What those of them that make variants have beside these.
const REGISTERING: [&str; 2] = ["registry", "variants"];

/// Over the engine of the configuration; it is connected to when it is first needed.
pub(super) fn open(config: &Config) -> anyhow::Result<Containers> {
    let pools = config.autoscaler.pools.iter();
    let pools = pools.filter(|(_, pool)| pool.provider == ProviderKind::Docker);
    let templates: anyhow::Result<BTreeMap<_, _>> = pools
        .map(|(name, pool)| Ok((name.clone(), template(config, name, pool)?)))
        .collect();
    Ok(Containers::new(Settings {
        socket: config.autoscaler.docker_socket.clone(),
        fleet: config.fleet.name.clone(),
        most: MOST,
        timeout_ms: TIMEOUT_MS,
        template: Template::default(),
        pools: templates?,
    }))
}

fn template(config: &Config, name: &DeviceTypeName, pool: &Pool) -> anyhow::Result<Template> {
    let mut files = BTreeMap::new();
    let roles = inherited::roles_of(config, pool);
    let text = settings(config, &mut files, roles)?;
    let set = inherited::of_pool(config, name, pool);
    let worker = inherited::check(name, (&text, &set), roles)?;
    let local = worker.objects.url.as_deref();
    ensure!(
        local.is_some_and(|url| !url.starts_with("file:")),
        "`autoscaler.pools.{name}`: containers do not see a folder of this machine: set `objects.url` to a \
         bucket"
    );
    let file = format!("{FOLDER}/worker.toml");
    let mut command: Vec<String> = ["serve", "--config", &file, "--roles", roles]
        .map(str::to_owned)
        .into();
    for pair in set {
        command.extend(["--set".to_owned(), pair]);
    }
    files.insert(file, Content::Text(text));
    Ok(Template {
        image: pool.image.clone(),
        command,
        environment: credentials(),
        network: pool.network.clone(),
        aliases: pool.alias.clone().into_iter().collect(),
        labels: labels(name, pool)?,
        files,
        limits: Limits {
            cores: pool.cores,
            memory_bytes: pool.total_memory_bytes,
            threads: Some(pool.threads),
        },
    })
}

/// What this process knows that a worker in a container needs, as a file; puts the other files that this one
/// names into `files`.
fn settings(
    config: &Config,
    files: &mut BTreeMap<String, Content>,
    roles: &str,
) -> anyhow::Result<String> {
    let mut own = config.clone();
    own.listen = everywhere(WATCHED_PORT);
    own.fleet.listen = Some(everywhere(PORT));
    own.fleet.advertise = None;
    // A worker has no API, but a process that listens beyond its machine must say which mode of keys it has.
    own.auth.mode = Some(config.auth.mode.unwrap_or(AuthMode::Keys));
    own.auth.admin_key = None;
    let certificates = [
        ("certificate.pem", &mut own.fleet.certificate),
        ("key.pem", &mut own.fleet.key),
        ("ca.pem", &mut own.fleet.ca),
    ];
    for (name, path) in certificates {
        if let Some(here) = path {
            let there = format!("{FOLDER}/fleet/{name}");
            let here = std::mem::replace(here, PathBuf::from(&there));
            files.insert(there, Content::Of(here));
        }
    }
    // These settings belong to this machine, and to a worker in this process.
    let worker = &mut own.worker;
    *worker = sextant_config::Worker {
        name: None,
        devices: sextant_config::Devices::default(),
        device_type: None,
        cores: None,
        memory_bytes: None,
        process_memory_bytes: None,
        pin: Vec::new(),
        remote: BTreeMap::new(),
        ..worker.clone()
    };
    let mut table = Table::try_from(&own).context("the settings cannot be written down")?;
    let registers = roles.contains(Role::VariantGen.name());
    table.retain(|key, _| {
        let own = registers && REGISTERING.contains(&key);
        key == "listen" || own || SHARED.contains(&key)
    });
    toml::to_string(&Value::Table(table)).context("the settings cannot be written down")
}

fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn labels(name: &DeviceTypeName, pool: &Pool) -> anyhow::Result<BTreeMap<String, String>> {
    let split = pool.labels.iter().map(|pair| {
        let (key, value) = pair.split_once('=').with_context(|| {
            format!("`autoscaler.pools.{name}.labels`: `{pair}` is not of the form `name=value`")
        })?;
        Ok((key.to_owned(), value.to_owned()))
    });
    split.collect()
}

/// This process's credentials for S3.
fn credentials() -> BTreeMap<String, String> {
    let all = std::env::vars_os();
    let known =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    known.filter(|(name, _)| name.starts_with("AWS_")).collect()
}

#[cfg(test)]
mod tests;
