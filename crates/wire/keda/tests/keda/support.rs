//! A server on a free port, and the desired numbers.

use std::{future::Future, sync::Arc, time::Duration};

use sextant_keda::{
    Error, KedaConfig, KedaServer, POOL, Tls,
    proto::{IsActiveResponse, ScaledObjectRef, external_scaler_client::ExternalScalerClient},
};
use sextant_metadata::Pool;
use sextant_types::DeviceTypeName;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

/// Longest wait for a state.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Ground {
    pub(crate) desired: watch::Sender<Arc<Vec<Pool>>>,
    pub(crate) endpoint: String,
    pub(crate) stop: CancellationToken,
    pub(crate) served: JoinHandle<Result<(), Error>>,
}

impl Ground {
    pub(crate) async fn with(desired: &[(&str, u32)]) -> Self {
        Self::encrypted(desired, None).await
    }

    pub(crate) async fn encrypted(desired: &[(&str, u32)], tls: Option<Tls>) -> Self {
        let (desired, pools) = watch::channel(pools(desired));
        let listen = "127.0.0.1:0".parse().expect("an address");
        let config = KedaConfig { listen, tls };
        let server = KedaServer::bind(config, pools).await.expect("a free port");
        let endpoint = server.address().to_string();
        let stop = CancellationToken::new();
        let served = tokio::spawn(server.run(stop.clone().cancelled_owned()));
        Self {
            desired,
            endpoint,
            stop,
            served,
        }
    }

    pub(crate) fn want(&self, desired: &[(&str, u32)]) {
        self.desired.send_replace(pools(desired));
    }

    pub(crate) async fn client(&self) -> ExternalScalerClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.endpoint));
        let channel = endpoint.expect("an address").connect().await;
        ExternalScalerClient::new(channel.expect("the server listens"))
    }

    pub(crate) async fn stream(&self, pool: &str) -> Streaming<IsActiveResponse> {
        let mut client = self.client().await;
        let stream = client.stream_is_active(object(pool)).await;
        stream.expect("a stream").into_inner()
    }
}

/// Pools with decided numbers of workers.
pub(crate) fn pools(desired: &[(&str, u32)]) -> Arc<Vec<Pool>> {
    let pool = |(name, desired): &(&str, u32)| Pool {
        device_type: DeviceTypeName::new(*name).expect("a name"),
        desired: *desired,
        least: 0,
        most: 100,
        provider: Some("keda".into()),
        facts: None,
        trouble: None,
    };
    Arc::new(desired.iter().map(pool).collect())
}

/// A ScaledObject that names a pool.
pub(crate) fn object(pool: &str) -> ScaledObjectRef {
    let scaler_metadata = [("scalerAddress", "sextant-keda:7071"), (POOL, pool)];
    ScaledObjectRef {
        name: "workers".to_owned(),
        namespace: "sextant".to_owned(),
        scaler_metadata: scaler_metadata
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    }
}

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(DEADLINE, what).await.expect("in time")
}

/// The next answer of a stream; `None` if it has ended without an error.
pub(crate) async fn next(stream: &mut Streaming<IsActiveResponse>) -> Option<bool> {
    let answer = in_time(stream.message()).await.expect("no error");
    answer.map(|answer| answer.result)
}
