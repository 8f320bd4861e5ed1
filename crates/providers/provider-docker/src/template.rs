//! Converts a template into requests to the engine.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, EndpointSettings, HostConfig, NetworkingConfig};
use sextant_provider::Error;
use sextant_types::{DeviceTypeName, WorkerId};
use uuid::Uuid;

use crate::{
    Content, NAME, POOL, Template,
    archive::Archive,
    container::{LABEL_FLEET, LABEL_MACHINE, LABEL_POOL},
};

/// A unique name.
pub(crate) fn name(pool: &DeviceTypeName) -> Result<WorkerId, Error> {
    let (random, ..) = Uuid::new_v4().as_fields();
    WorkerId::new(format!("{pool}-{random:08x}")).map_err(|_| Error::Settings {
        pool: pool.clone(),
        reason: "its name is too long to begin the names of workers: shorten it".to_owned(),
    })
}

/// The request for a container of this name.
pub(crate) fn body(
    template: &Template,
    fleet: &str,
    pool: &DeviceTypeName,
    name: &WorkerId,
) -> ContainerCreateBody {
    let filled = |text: &String| {
        text.replace(NAME, name.as_str())
            .replace(POOL, pool.as_str())
    };
    let environment = template.environment.iter();
    let environment = environment.map(|(key, value)| format!("{key}={}", filled(value)));
    let labels = template.labels.iter();
    let mut labels: HashMap<_, _> = labels
        .map(|(key, value)| (key.clone(), filled(value)))
        .collect();
    for (key, value) in [
        (LABEL_FLEET, fleet),
        (LABEL_POOL, pool.as_str()),
        (LABEL_MACHINE, name.as_str()),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let command: Vec<_> = template.command.iter().map(filled).collect();
    ContainerCreateBody {
        image: Some(template.image.clone()),
        cmd: (!command.is_empty()).then_some(command),
        env: Some(environment.collect()),
        labels: Some(labels),
        // This overrides the image: a worker drains on SIGTERM.
        stop_signal: Some("SIGTERM".to_owned()),
        host_config: Some(host(template)),
        networking_config: networking(template),
        ..ContainerCreateBody::default()
    }
}

/// The container's limits on its host.
fn host(template: &Template) -> HostConfig {
    let limits = &template.limits;
    let memory = limits.memory_bytes;
    let memory = memory.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    HostConfig {
        network_mode: template.network.clone(),
        nano_cpus: limits.cores.map(|cores| i64::from(cores) * 1_000_000_000),
        memory,
        // No swap: a worker that swaps answers no query in time.
        memory_swap: memory,
        pids_limit: limits.threads.map(i64::from),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        ..HostConfig::default()
    }
}

/// The network, and the names in addition to a container's own.
fn networking(template: &Template) -> Option<NetworkingConfig> {
    let network = template.network.clone()?;
    if template.aliases.is_empty() {
        return None;
    }
    let endpoint = EndpointSettings {
        aliases: Some(template.aliases.clone()),
        ..EndpointSettings::default()
    };
    Some(NetworkingConfig {
        endpoints_config: Some([(network, endpoint)].into()),
    })
}

/// The files of a container as an archive; `None` if there are none.
pub(crate) fn archive(
    template: &Template,
    pool: &DeviceTypeName,
) -> Result<Option<Vec<u8>>, Error> {
    let settings = |reason| Error::Settings {
        pool: pool.clone(),
        reason,
    };
    let mut archive = Archive::default();
    for (path, content) in &template.files {
        let bytes = match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::Of(file) => std::fs::read(file).map_err(|error| {
                settings(format!("`{}` cannot be read: {error}", file.display()))
            })?,
        };
        if !archive.add(path.trim_start_matches('/'), &bytes) {
            return Err(settings(format!("`{path}` is too long for a file's path")));
        }
    }
    Ok((!template.files.is_empty()).then(|| archive.finish()))
}
