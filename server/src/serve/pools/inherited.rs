//! The settings of workers that providers start: a file with those settings of this process that concern a worker,
//! overridden by the settings of their pool.
//!
//! The file and the settings are read here as a worker reads them, so that settings that a worker would refuse are
//! refused before any worker is started.

use anyhow::Context;
use sextant_types::DeviceTypeName;

use super::super::front;
use sextant_config::{Config, Pool, Role, Roles};

/// A name as workers of pools have them.
const SOME_NAME: &str = "some-worker";

/// Settings for `--set` of every worker of a pool; `{name}` stands for its name.
pub(super) fn of_pool(config: &Config, name: &DeviceTypeName, pool: &Pool) -> Vec<String> {
    let mut set = vec![format!("worker.name={}", sextant_provider::process::NAME)];
    set.extend(device(config, name, pool));
    if let Some(cores) = pool.cores {
        set.push(format!("worker.cores={cores}"));
    }
    if let Some(bytes) = pool.total_memory_bytes {
        set.push(format!("worker.memory_bytes={}", bytes / 2));
    }
    if roles_of(config, pool).contains(Role::VariantGen.name()) {
        // This worker makes variants for models that other processes register, and registers none itself.
        set.push("variants.register=false".to_owned());
    }
    set.extend(pool.settings.iter().cloned());
    set
}

/// Settings of a worker with one device of a type.
fn device(config: &Config, name: &DeviceTypeName, pool: &Pool) -> Vec<String> {
    if config.worker.emulated.types.contains_key(name) {
        return vec![format!("worker.devices=emulated:1@{name}")];
    }
    match has_gpus(pool) {
        true => vec![format!("worker.cuda.device_type={name}")],
        false => vec![
            "worker.devices=cpu".to_owned(),
            format!("worker.device_type={name}"),
        ],
    }
}

/// Whether the settings of a pool give its workers GPUs.
pub(super) fn has_gpus(pool: &Pool) -> bool {
    setting(pool, "worker.devices").is_some_and(|devices| devices.starts_with("cuda"))
}

/// The roles of the workers of a pool, as they are given: those that have other engines than registration has make
/// variants for them.
pub(super) fn roles_of(config: &Config, pool: &Pool) -> &'static str {
    let usual = has_gpus(pool) && config.registry.url.is_some();
    match pool.registers.unwrap_or(usual) {
        true => "worker,variant-gen",
        false => "worker",
    }
}

/// What the settings of a pool say of a key.
pub(super) fn setting<'a>(pool: &'a Pool, key: &str) -> Option<&'a str> {
    let pairs = pool.settings.iter().rev();
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(own, _)| own.trim() == key)
        .map(|(_, value)| value)
}

/// What a worker reads that is started with the file `text` and these settings; why it would not start.
pub(super) fn check(
    name: &DeviceTypeName,
    (text, set): (&str, &[String]),
    roles: &str,
) -> anyhow::Result<Config> {
    let filled = set.iter().map(|pair| {
        pair.replace(sextant_provider::process::NAME, SOME_NAME)
            .replace(sextant_provider::process::POOL, name.as_str())
    });
    let filled: Vec<String> = filled.collect();
    let read = Config::read(text, "the settings that workers are given", &filled);
    let checked = read.map_err(anyhow::Error::from).and_then(|mut config| {
        config.roles = Roles([Role::Worker].into());
        if roles.contains(Role::VariantGen.name()) {
            config.roles.0.insert(Role::VariantGen);
        }
        super::super::roles::check(&config)?;
        front::check_access(&config)?;
        Ok(config)
    });
    checked.with_context(|| format!("workers of `autoscaler.pools.{name}` could not start"))
}
