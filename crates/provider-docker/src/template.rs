//! From a template to what the engine is asked for.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HostConfig};
use sextant_provider::Error;
use sextant_types::{DeviceTypeName, WorkerId};
use uuid::Uuid;

use crate::{
    NAME, POOL, Template,
    container::{LABEL_FLEET, LABEL_MACHINE, LABEL_POOL},
};

/// A name that no other machine has.
pub(crate) fn name(pool: &DeviceTypeName) -> Result<WorkerId, Error> {
    let (random, ..) = Uuid::new_v4().as_fields();
    WorkerId::new(format!("{pool}-{random:08x}")).map_err(|_| Error::Settings {
        pool: pool.clone(),
        reason: "its name is too long to begin the names of workers: shorten it".to_owned(),
    })
}

/// A container of this name.
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
        // Whatever the image says: it is what a worker drains on.
        stop_signal: Some("SIGTERM".to_owned()),
        host_config: template.network.clone().map(|network| HostConfig {
            network_mode: Some(network),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}
