//! The pools of the configuration: the provider that starts and ends their workers, and the workers' settings.

mod children;
#[cfg(feature = "docker")]
mod containers;
mod inherited;
#[cfg(feature = "keda")]
mod keda;
#[cfg(feature = "kubernetes")]
mod pods;
mod shares;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::ensure;
use sextant_autoscaler::PoolConfig;
use sextant_provider::{
    Provider,
    command::{self, Script},
};
use sextant_types::{DeviceType, DeviceTypeName, EngineName, Prices};

pub(super) use self::children::end_with;
#[cfg(feature = "keda")]
pub(super) use self::keda::serve as serve_keda;
use sextant_config::{Config, Pool, ProviderKind};

/// Refuses pools that nothing can be made of.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let pools = &config.autoscaler.pools;
    ensure!(
        pools.is_empty() || config.metadata.url.is_some(),
        "`autoscaler.pools` is set and `metadata.url` is not: workers that are started could not be \
         found"
    );
    for (name, pool) in pools {
        ensure!(
            pool.least <= pool.most,
            "`autoscaler.pools.{name}`: `least` is {} and `most` is {}",
            pool.least,
            pool.most
        );
        ensure!(
            pool.provider != ProviderKind::Command || !pool.command.is_empty(),
            "`autoscaler.pools.{name}.command` names no program"
        );
        ensure!(
            pool.provider != ProviderKind::Kubernetes || pool.workload.is_some(),
            "`autoscaler.pools.{name}.workload` is not set: `deployment/NAME` or `statefulset/NAME`"
        );
        ensure!(
            pool.provider != ProviderKind::Keda || config.autoscaler.keda_listen.is_some(),
            "`autoscaler.pools.{name}` is scaled by KEDA and `autoscaler.keda_listen` is not set"
        );
        ensure!(
            pool.gpus.is_empty() || pool.gpus.len() >= pool.most as usize,
            "`autoscaler.pools.{name}`: `gpus` names {} and `most` is {}",
            pool.gpus.len(),
            pool.most
        );
        ensure!(
            pool.registers != Some(true) || config.registry.url.is_some(),
            "`autoscaler.pools.{name}.registers` is set and `registry.url` is not: its workers share the registry"
        );
        ensure!(
            pool.least > 0 || !facts(config, name, pool).engines.is_empty(),
            "`autoscaler.pools.{name}`: with `least = 0` nobody may ever see a worker of it: say \
             what it can run with `engines`"
        );
    }
    Ok(())
}

/// The pools with their providers.
pub(super) async fn build(config: &Config) -> anyhow::Result<BTreeMap<DeviceTypeName, PoolConfig>> {
    let mut providers: BTreeMap<ProviderKind, Arc<dyn Provider>> = BTreeMap::new();
    let mut built = BTreeMap::new();
    for (name, pool) in &config.autoscaler.pools {
        let provider = match (pool.provider, providers.get(&pool.provider)) {
            (ProviderKind::Command, _) => Arc::new(script(pool)) as Arc<dyn Provider>,
            (_, Some(shared)) => Arc::clone(shared),
            (kind, None) => {
                let opened = open(config, kind).await?;
                providers.insert(kind, Arc::clone(&opened));
                opened
            }
        };
        let one = PoolConfig {
            least: pool.least,
            most: pool.most,
            end_ms: pool.end_s.saturating_mul(1000),
            facts: Some(Arc::new(facts(config, name, pool))),
            provider,
        };
        built.insert(name.clone(), one);
    }
    Ok(built)
}

/// The provider of all pools of a kind.
async fn open(config: &Config, kind: ProviderKind) -> anyhow::Result<Arc<dyn Provider>> {
    match kind {
        ProviderKind::Process | ProviderKind::Command => Ok(Arc::new(children::open(config)?)),
        #[cfg(feature = "docker")]
        ProviderKind::Docker => Ok(Arc::new(containers::open(config)?)),
        #[cfg(feature = "kubernetes")]
        ProviderKind::Kubernetes => Ok(Arc::new(pods::open(config).await?)),
        #[cfg(feature = "keda")]
        ProviderKind::Keda => Ok(Arc::new(sextant_keda::KedaProvider)),
        #[cfg(not(all(feature = "docker", feature = "kubernetes", feature = "keda")))]
        other => anyhow::bail!(
            "provider `{name}`: this binary was built without it, as the demo's is; build the whole one with \
             `cargo build --release --package sextant`",
            name = other.name()
        ),
    }
}

fn script(pool: &Pool) -> Script {
    let mut words = pool.command.iter().cloned();
    Script::new(command::Settings {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        environment: BTreeMap::new(),
        timeout_ms: pool.command_timeout_ms,
        settle_ms: pool.command_timeout_ms,
    })
}

/// What the configuration says of a type of which no worker was seen. Where that is no engine, nothing is planned for
/// it, and the least number of workers starts all the same: the first of them says what it is.
fn facts(config: &Config, name: &DeviceTypeName, pool: &Pool) -> DeviceType {
    let emulated = config.worker.emulated.types.contains_key(name);
    let has_gpus = inherited::has_gpus(pool);
    let (engines, slots, memory_bytes) = match pool.engines.is_empty() && (emulated || has_gpus) {
        true if has_gpus => {
            let engines = config.worker.cuda.engines.0.iter().cloned();
            (engines.map(EngineName).collect(), 1, pool.memory_bytes)
        }
        true => {
            let pages = &config.worker.emulated;
            let memory = pages.pages.saturating_mul(pages.page_bytes);
            (vec![EngineName("emulated".to_owned())], 1, memory)
        }
        false => {
            let engines = pool.engines.iter().cloned().map(EngineName);
            (engines.collect(), pool.slots, pool.memory_bytes)
        }
    };
    let prices = Prices::from(config.prices.clone());
    let (price_per_hour_usd, _) = match emulated || has_gpus {
        true => prices.accelerator(name),
        false => prices.processor(name, slots, memory_bytes),
    };
    DeviceType {
        start_ms: prices.start_ms(name),
        name: name.clone(),
        engines,
        slots,
        memory_bytes,
        price_per_hour_usd,
    }
}
