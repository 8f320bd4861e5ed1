//! Checks the stores of a fleet: whether they answer, and whether their clocks agree with this
//! machine's.

use sextant_config::Config;

use super::Finding;

#[cfg(not(feature = "fleet"))]
pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let urls = [&config.metadata.url, &config.registry.url];
    let is_needed = urls.into_iter().any(Option::is_some);
    let finding = || Finding::fail("stores", crate::serve::UNBUILT, "build the whole one");
    is_needed.then(finding).into_iter().collect()
}

#[cfg(feature = "fleet")]
pub(super) use remote::look;

#[cfg(feature = "fleet")]
mod remote {
    use std::{
        fmt::Display,
        time::{Duration, Instant},
    };

    use sextant_metadata_redis::RedisStore;
    use sextant_registry::{ConnectOptions, Registry};
    use sextant_types::time::unix_ms;

    use super::{Config, Finding};
    use crate::serve::stores::remote;

    /// Clocks that differ by more make leases and logs hard to follow, ms.
    const FAR_APART_MS: f64 = 1_000.0;

    /// How long a store may take to answer.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Asks each store that the configuration names.
    pub(in crate::serve::examine) async fn look(config: &Config) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(url) = &config.metadata.url {
            let asked = async {
                RedisStore::connect(remote::redis(config, url))
                    .await?
                    .time_ms()
                    .await
            };
            findings.push(answered("metadata store", "metadata.url", asked).await);
        }
        if let Some(url) = &config.registry.url {
            let options = ConnectOptions::new(url);
            findings.push(answered("registry", "registry.url", Registry::reach(&options)).await);
        }
        let bucket = config.objects.url.as_deref();
        if let Some(url) = bucket.filter(|url| !url.starts_with("file://")) {
            findings.push(bucket_of(config, url).await);
        }
        findings
    }

    /// A store that tells its time.
    async fn answered<E: Display>(
        check: &str,
        setting: &str,
        asked: impl Future<Output = Result<u64, E>>,
    ) -> Finding {
        let begun = Instant::now();
        let advice = format!("start the server, or correct `{setting}`");
        let told = match tokio::time::timeout(PATIENCE, asked).await {
            Err(_) => return Finding::fail(check, "it does not answer", advice),
            Ok(Err(error)) => return Finding::fail(check, error.to_string(), advice),
            Ok(Ok(told)) => told,
        };
        // The store read its clock at some moment in between.
        let took_ms = begun.elapsed().as_secs_f64() * 1e3;
        let offset_ms = told as f64 - (unix_ms() as f64 - took_ms / 2.0);
        let found =
            format!("it answers, its clock differs by {offset_ms:.0} ms (within {took_ms:.0} ms)");
        match offset_ms.abs() > FAR_APART_MS + took_ms {
            true => Finding::warn(check, found, "have both machines follow a time server"),
            false => Finding::ok(check, found),
        }
    }

    async fn bucket_of(config: &Config, url: &str) -> Finding {
        let check = "artefact store";
        let advice =
            "start the server, or correct `objects` and the credentials in the environment";
        match tokio::time::timeout(PATIENCE, remote::reach(config, url)).await {
            Err(_) => Finding::fail(check, "it does not answer", advice),
            Ok(Err(error)) => Finding::fail(check, format!("{error:#}"), advice),
            Ok(Ok(())) => Finding::ok(check, format!("`{url}` answers")),
        }
    }
}
