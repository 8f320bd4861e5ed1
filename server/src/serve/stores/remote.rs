//! Redis, PostgreSQL and S3.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use sextant_metadata::{MetadataStore, RateStore};
use sextant_metadata_redis::{RedisConfig, RedisStore};
use sextant_objects::{CachedStore, ObjectStore};
use sextant_objects_s3::{S3Config, S3Store};
use sextant_registry::{ConnectOptions, Registry};

use sextant_config::{Config, Role, without_password};

pub(super) async fn metadata(
    config: &Config,
    url: &str,
) -> anyhow::Result<(Arc<dyn MetadataStore>, Arc<dyn RateStore>)> {
    let store = RedisStore::connect(redis(config, url)).await;
    let store = store.with_context(|| named("metadata.url", url))?;
    let rates = Arc::new(store.rates());
    Ok((store, rates))
}

/// How the metadata store is reached.
pub(in crate::serve) fn redis(config: &Config, url: &str) -> RedisConfig {
    RedisConfig {
        prefix: config.fleet.name.clone(),
        history: usize::try_from(config.metadata.history).unwrap_or(usize::MAX),
        timeout: Duration::from_millis(config.metadata.timeout_ms),
        ..RedisConfig::new(url)
    }
}

pub(super) async fn registry(config: &Config, url: &str) -> anyhow::Result<Registry> {
    let options = ConnectOptions {
        connections: config.registry.connections,
        ..ConnectOptions::new(url)
    };
    let registry = Registry::connect_with(&options).await;
    let registry = registry.with_context(|| named("registry.url", url))?;
    // Other processes may hold jobs: only jobs whose lease has lapsed are taken over.
    let lapsed = registry
        .requeue_orphans(sextant_types::time::unix_ms())
        .await;
    let lapsed = lapsed.context("jobs cannot be taken over")?;
    if lapsed > 0 {
        tracing::info!(jobs = lapsed, "jobs that nobody held any more wait again");
    }
    Ok(registry)
}

/// The bucket; in a process that loads models behind a cache.
pub(super) async fn objects(config: &Config, url: &str) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let spool = config.data_dir.join("uploads");
    std::fs::create_dir_all(&spool).context("the folder for uploads cannot be created")?;
    let s3 = S3Config {
        spool: Some(spool),
        ..s3(config, url)?
    };
    let store = S3Store::open(s3).await;
    let store: Arc<dyn ObjectStore> = Arc::new(store.with_context(|| named("objects.url", url))?);
    let maps_models = [Role::Worker, Role::VariantGen];
    if !maps_models.iter().any(|role| config.roles.contains(*role)) {
        return Ok(store);
    }
    let folder = config.data_dir.join("cache");
    let cache = CachedStore::open(store, folder, config.objects.cache_bytes);
    Ok(Arc::new(
        cache.context("the cache of models cannot be opened")?,
    ))
}

/// The bucket alone, beside processes that have a cache and a spool.
pub(super) async fn bucket_alone(
    config: &Config,
    url: &str,
) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let store = S3Store::open(s3(config, url)?).await;
    Ok(Arc::new(store.with_context(|| named("objects.url", url))?))
}

/// Whether the bucket can be looked at.
pub(in crate::serve) async fn reach(config: &Config, url: &str) -> anyhow::Result<()> {
    S3Store::open(s3(config, url)?).await?;
    Ok(())
}

fn s3(config: &Config, url: &str) -> anyhow::Result<S3Config> {
    let (bucket, prefix) = bucket(url)?;
    let settings = &config.objects;
    Ok(S3Config {
        prefix,
        endpoint: settings.endpoint.clone(),
        region: settings.region.clone(),
        path_style: settings.path_style.unwrap_or(settings.endpoint.is_some()),
        ..S3Config::new(bucket)
    })
}

/// `s3://bucket/prefix` as bucket and prefix.
fn bucket(url: &str) -> anyhow::Result<(String, String)> {
    let place = url.strip_prefix("s3://");
    let place = place.context("`objects.url` must begin with `s3://` or `file://`")?;
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let prefix = match prefix.trim_matches('/') {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    Ok((bucket.to_owned(), prefix))
}

fn named(key: &str, url: &str) -> String {
    format!("`{key}` is `{}`", without_password(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_may_have_a_prefix() {
        let read = |url| bucket(url).expect("a bucket");
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(read("s3://models"), pair("models", ""));
        assert_eq!(read("s3://models/"), pair("models", ""));
        assert_eq!(read("s3://models/a/b/"), pair("models", "a/b/"));
        assert!(bucket("http://models").is_err());
    }
}
