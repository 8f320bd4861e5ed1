//! Containers of a Docker engine, each with a worker.

use std::collections::BTreeMap;

use anyhow::Context;
use sextant_provider_docker::{Containers, NAME, Settings, Template};
use sextant_types::DeviceTypeName;
use toml::Value;

use sextant_config::{Config, Pool, ProviderKind};

/// Most containers of all pools together.
const MOST: u32 = 1024;

/// Longest time that the engine may take for an answer, ms.
const TIMEOUT_MS: u64 = 30_000;

/// Where a container's worker is reached by the others of its network.
const PORT: u16 = 7070;

/// Sections of this process's settings that its workers have, too.
const SHARED: [&str; 4] = ["metadata", "objects", "prices", "log"];

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
    let mut set = vec![
        format!("worker.name={NAME}"),
        format!("fleet.listen=0.0.0.0:{PORT}"),
        format!("fleet.name={}", config.fleet.name),
    ];
    set.extend(super::device(config, name));
    set.extend(pool.settings.iter().cloned());
    let mut command = vec!["serve".to_owned(), "--role".to_owned(), "worker".to_owned()];
    for pair in set {
        command.extend(["--set".to_owned(), pair]);
    }
    Ok(Template {
        image: pool.image.clone(),
        command,
        environment: environment(config)?,
        network: pool.network.clone(),
        labels: BTreeMap::new(),
    })
}

/// What this process knows of the stores, as variables; with its credentials for S3.
fn environment(config: &Config) -> anyhow::Result<BTreeMap<String, String>> {
    let table = toml::Table::try_from(config).context("the settings cannot be written down")?;
    let mut variables = BTreeMap::new();
    for section in SHARED {
        if let Some(value) = table.get(section) {
            flatten(
                &format!("SEXTANT_{}", section.to_uppercase()),
                value,
                &mut variables,
            );
        }
    }
    let own = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
    variables.extend(own);
    Ok(variables)
}

fn flatten(name: &str, value: &Value, variables: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{name}__{}", key.to_uppercase()), value, variables);
            }
        }
        Value::String(text) => {
            variables.insert(name.to_owned(), text.clone());
        }
        Value::Array(_) => {}
        other => {
            variables.insert(name.to_owned(), other.to_string());
        }
    }
}
