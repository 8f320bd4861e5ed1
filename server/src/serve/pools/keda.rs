//! Answers KEDA's question how many workers are desired. Every autoscaler answers, whether it leads
//! or not.

use std::sync::Arc;

use anyhow::Context;
use sextant_fleet::Follower;
use sextant_keda::{KedaConfig, KedaServer};
use sextant_metadata::MetadataStore;
use tokio::sync::watch;

use super::super::process::Process;
use sextant_config::Config;

/// Answers KEDA where the configuration says so.
pub(in crate::serve) async fn serve(
    config: &Config,
    metadata: Arc<dyn MetadataStore>,
    process: &mut Process,
) -> anyhow::Result<()> {
    let Some(listen) = config.autoscaler.keda_listen else {
        return Ok(());
    };
    let (desired, pools) = watch::channel(Arc::default());
    let keda = KedaConfig { listen, tls: None };
    let server = KedaServer::bind(keda, pools)
        .await
        .context("`autoscaler.keda_listen`")?;
    tracing::info!(address = %server.address(), "KEDA is answered");
    process.spawn(|stop| async move {
        let follow = async {
            let mut follower = Follower::new(metadata);
            loop {
                let view = follower.view();
                let pools = view.desired.as_ref().map(|it| it.pools.clone());
                desired.send_replace(Arc::new(pools.unwrap_or_default()));
                follower.changed().await;
            }
        };
        tokio::select! {
            () = follow => {}
            served = server.run(stop.cancelled()) => {
                if let Err(error) = served {
                    tracing::error!(%error, "KEDA is answered no more");
                }
            }
        }
    });
    Ok(())
}
