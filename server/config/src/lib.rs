//! The configuration: what can be set, where it comes from and what wins.
//!
//! A setting comes from the defaults, the TOML file, the environment or a flag; the later of these
//! wins. Every layer becomes a table of TOML values that is checked key by key, so that an error
//! names the key and where it was set, and an unknown key names its nearest relative. The tables are
//! then merged and read into [`Config`] once.
//!
//! Entry points: [`Config::load`], [`Sources`]; [`Config::read`] for what other processes are given.

use sextant_types::{DeviceTypeName, WorkerId};

mod autoscaler;
mod docs;
mod error;
mod fleet;
mod health;
mod layers;
mod machine;
mod pipelines;
mod removed;
mod role;
mod schedule;
mod section;
mod sections;
mod worker;

pub use autoscaler::{Pool, ProviderKind, ScalingPolicy};
pub use docs::render as describe;
pub use error::Error;
pub use fleet::AuthMode;
pub use layers::{Flag, Sources};
pub use role::{Role, Roles};
pub use schedule::{Parallelism, PlacementPolicy, RunTimes};
pub use sections::{Config, DevicePrice, Effort, Limits, Log, LogFormat, Prices, Runtime};
pub use worker::{
    Binary, Cuda, DeviceSpec, Devices, EmulatedType, GpuEngines, Remote, Worker, WorkerIsolation,
};

impl Config {
    /// Merges all layers of `sources` over the defaults.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        Self::of(layers::merge(sources)?)
    }

    /// What another process would read: a file's content, which errors call `origin`, and `key=value` of
    /// `--set` over it.
    pub fn read(text: &str, origin: &str, set: &[String]) -> Result<Self, Error> {
        Self::of(layers::merge_text(text, origin, set)?)
    }

    fn of(table: toml::Table) -> Result<Self, Error> {
        let config: Self =
            toml::Value::Table(table)
                .try_into()
                .map_err(|source: toml::de::Error| Error::Unreadable {
                    origin: "the merged configuration".to_owned(),
                    reason: source.to_string(),
                })?;
        config.worker.health.check()?;
        Ok(config)
    }

    /// Replaces what is left to the machine (cores, memory, threads) by what this machine has, and
    /// hides what is secret: for people to read.
    pub fn resolved(mut self) -> Self {
        self.worker.name = Some(self.worker_name());
        self.worker.cores = Some(self.worker_cores());
        self.worker.memory_bytes = Some(self.worker_memory_bytes());
        self.worker.process_memory_bytes = Some(self.process_memory_bytes());
        self.worker.device_type = Some(self.device_type());
        self.variants.max_threads = Some(self.max_threads());
        self.variants.profile_ms_per_batch = Some(self.variants.time_per_batch_ms());
        self.variants.memory_bytes = Some(self.variants_memory_bytes());
        self.variants.max_registrations = Some(self.max_registrations());
        self.runtime.threads = Some(self.runtime.threads());
        for url in [&mut self.metadata.url, &mut self.registry.url] {
            *url = url.take().map(|url| without_password(&url));
        }
        for secret in [&mut self.auth.admin_key, &mut self.jobs.webhook_secret] {
            *secret = secret.take().map(|_| HIDDEN.to_owned());
        }
        for remote in self.worker.remote.values_mut() {
            remote.url = remote.url.take().map(|url| without_password(&url));
            hide_behind(&mut remote.headers, ':');
            hide_behind(&mut remote.environment, '=');
        }
        self
    }

    /// The name of the CPU's worker: as configured, else `local`, or this machine's name where
    /// other machines have workers, too.
    pub fn worker_name(&self) -> WorkerId {
        let fleet = self.metadata.url.is_some();
        let configured = self.worker.name.clone();
        let machine = || fleet.then(machine::name).flatten();
        let local = || WorkerId::new("local").expect("`local` obeys the naming rule");
        configured.or_else(machine).unwrap_or_else(local)
    }

    /// Most intra-op threads of a generated variant: as configured, never more than the worker's
    /// cores.
    pub fn max_threads(&self) -> u16 {
        let cores = self.worker_cores();
        self.variants.max_threads.unwrap_or(cores).min(cores)
    }

    /// The type of this machine as a device: as configured, else by its cores.
    pub fn device_type(&self) -> DeviceTypeName {
        let configured = self.worker.device_type.clone();
        configured.unwrap_or_else(|| DeviceTypeName::processor(self.worker_cores()))
    }

    /// Cores that batches may occupy: as configured, else all that the process may use.
    pub fn worker_cores(&self) -> u16 {
        self.worker.cores.unwrap_or_else(machine::cores)
    }

    /// Bytes that a process may take in which models are measured.
    pub fn variants_memory_bytes(&self) -> u64 {
        let configured = self.variants.memory_bytes;
        configured.unwrap_or_else(|| machine::memory_bytes() / 2)
    }

    /// Most registrations at once: as configured, else as many as have the memory that each may take.
    pub fn max_registrations(&self) -> u16 {
        let configured = self.variants.max_registrations;
        configured.unwrap_or_else(|| {
            let fit = machine::memory_bytes() / self.variants_memory_bytes().max(1);
            fit.clamp(2, 4) as u16
        })
    }

    /// Bytes that loaded variants may occupy: as configured, else half of what the process may use.
    pub fn worker_memory_bytes(&self) -> u64 {
        let configured = self.worker.memory_bytes;
        configured.unwrap_or_else(|| machine::memory_bytes() / 2)
    }

    /// Bytes that an artefact's process may take for weights and runs.
    pub fn process_memory_bytes(&self) -> u64 {
        let configured = self.worker.process_memory_bytes;
        configured.unwrap_or_else(|| self.worker_memory_bytes())
    }
}

/// What is printed in place of a secret.
const HIDDEN: &str = "***";

/// `scheme://user:***@host/..?password=***`.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return HIDDEN.to_owned();
    };
    let (rest, parameters) = match rest.split_once('?') {
        // A password may hold a question mark.
        Some((rest, parameters)) if !parameters.contains('@') => (rest, Some(parameters)),
        _ => (rest, None),
    };
    let shown = match rest.rsplit_once('@') {
        Some((user, place)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{HIDDEN}@{place}")
        }
        None => format!("{scheme}://{rest}"),
    };
    match parameters {
        Some(parameters) => format!("{shown}?{}", without_secrets(parameters)),
        None => shown,
    }
}

/// Parameters of a URL, those that are called after passwords hidden.
fn without_secrets(parameters: &str) -> String {
    let shown = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("pass") => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    };
    let parameters: Vec<String> = parameters.split('&').map(shown).collect();
    parameters.join("&")
}

/// Leaves the names of `name: value` or `NAME=value`: values may be passwords.
fn hide_behind(pairs: &mut [String], sign: char) {
    for pair in pairs {
        let name = pair.split(sign).next().unwrap_or_default();
        let space = if sign == ':' { " " } else { "" };
        *pair = format!("{name}{sign}{space}{HIDDEN}");
    }
}

impl Runtime {
    /// Threads of the asynchronous runtime: as configured, else one for each core.
    pub fn threads(&self) -> u16 {
        self.threads.unwrap_or_else(machine::cores)
    }
}

impl From<Prices> for sextant_types::Prices {
    fn from(prices: Prices) -> Self {
        Self {
            core_hour_usd: prices.core_hour_usd,
            memory_gib_hour_usd: prices.memory_gib_hour_usd,
            devices: prices
                .devices
                .into_iter()
                .map(|(name, price)| (name, price.into()))
                .collect(),
        }
    }
}

impl From<DevicePrice> for sextant_types::DevicePrice {
    fn from(price: DevicePrice) -> Self {
        Self {
            hour_usd: price.hour_usd,
            start_ms: Some(price.start_s.saturating_mul(1000)),
        }
    }
}

#[cfg(test)]
mod tests;
