//! Pools of Kubernetes pods, each pod with a worker.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use sextant_provider_kubernetes::{Kind, Kubernetes, Settings, Workload};

use sextant_config::{Config, ProviderKind};

/// Longest time that the API server may take for an answer, ms.
const TIMEOUT_MS: u64 = 30_000;

/// How long Kubernetes may take to make or end pods after the replicas have changed, ms.
const SETTLE_MS: u64 = 30_000;

/// Over the cluster in which this process runs, or the one of its `kubectl`.
pub(super) async fn open(config: &Config) -> anyhow::Result<Kubernetes> {
    let pools = config.autoscaler.pools.iter();
    let pools = pools.filter(|(_, pool)| pool.provider == ProviderKind::Kubernetes);
    let workloads: anyhow::Result<BTreeMap<_, _>> = pools
        .map(|(name, pool)| {
            let text = pool.workload.as_deref().unwrap_or_default();
            let read = workload(text);
            let read = read.with_context(|| format!("`autoscaler.pools.{name}.workload`"))?;
            Ok((name.clone(), read))
        })
        .collect();
    let settings = Settings {
        namespace: config.autoscaler.kubernetes_namespace.clone(),
        pools: workloads?,
        timeout_ms: TIMEOUT_MS,
        settle_ms: SETTLE_MS,
    };
    Ok(Kubernetes::connect(settings).await?)
}

fn workload(text: &str) -> anyhow::Result<Workload> {
    let kind = match text.split_once('/') {
        Some(("deployment", _)) => Kind::Deployment,
        Some(("statefulset", _)) => Kind::StatefulSet,
        _ => bail!("`{text}` is neither `deployment/NAME` nor `statefulset/NAME`"),
    };
    let name = text.split_once('/').map_or(text, |(_, name)| name);
    Ok(Workload {
        kind,
        name: name.to_owned(),
    })
}
