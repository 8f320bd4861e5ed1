//! The four calls.
//!
//! A stream sends the present answer when it is opened, and again with each change of the desired number of workers,
//! even if the answer stays the same. KEDA acts on every message, so after a message on which it failed to act there
//! are others. If changes come faster than a client reads, only the last one is sent.
//!
//! A stream ends without an error when the server stops, and never by itself. KEDA then calls again after two seconds;
//! after an error it waits longer each time. If a pool disappears for a while, for example because no process leads,
//! its stream stays open and silent.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use futures::{Stream, stream};
use sextant_metadata::Pool;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
    external_scaler_server::{ExternalScaler, ExternalScalerServer},
};

/// The metric of a pool: the desired number of its workers. Each replica counts 1.
pub const METRIC: &str = "sextant_workers_desired";

/// Former name of [`METRIC`], answered until the next release.
pub const FORMER_METRIC: &str = "sextant_workers_wanted";

/// The key in the metadata of a ScaledObject's trigger that has the name of the pool, which is that of its device type.
pub const POOL: &str = "pool";

/// The desired numbers of workers: the present `DesiredState::pools`.
pub type Pools = watch::Receiver<Arc<Vec<Pool>>>;

/// The service that KEDA calls. Clones share the pools.
#[derive(Debug, Clone)]
pub struct Scaler {
    pools: Pools,
    /// Cancelled when open streams must end.
    ending: CancellationToken,
}

/// A stream of changes.
struct Changes {
    pools: Pools,
    pool: String,
    told: Option<u32>,
    ending: CancellationToken,
}

/// The messages of a stream.
type Answers = Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;

// === impl Scaler ===

impl Scaler {
    /// Answers from the state of these pools at the time of each call. When their sender is gone, streams end, and the
    /// other calls use the last state.
    pub fn new(pools: Pools) -> Self {
        Self {
            pools,
            ending: CancellationToken::new(),
        }
    }

    /// The service for a `tonic` server of the caller's.
    pub fn service(&self) -> ExternalScalerServer<Self> {
        ExternalScalerServer::new(self.clone())
    }

    /// Ends all streams, including those that are opened later. Needed by a server whose own shutdown waits for open
    /// calls.
    pub fn end(&self) {
        self.ending.cancel();
    }

    /// Resolves once [`end`](Self::end) was called.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ending.clone().cancelled_owned()
    }

    /// The desired number of workers of the pool that a ScaledObject names.
    fn desired(&self, object: &ScaledObjectRef) -> Result<u32, Status> {
        let name = pool_name(object)?;
        let pools = Arc::clone(&self.pools.borrow());
        match find(&pools, name) {
            Some(pool) if pool.provider.is_some() => Ok(pool.desired),
            Some(_) => Err(Status::failed_precondition(format!(
                "nobody decides how many workers pool `{name}` has: configure it with the provider `keda`"
            ))),
            None => Err(Status::not_found(unknown(name, &pools))),
        }
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = Answers;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let desired = self.desired(request.get_ref())?;
        Ok(Response::new(active(desired)))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Answers>, Status> {
        let object = request.get_ref();
        self.desired(object)?;
        let changes = Changes {
            pools: self.pools.clone(),
            pool: pool_name(object)?.to_owned(),
            told: None,
            ending: self.ending.clone(),
        };
        let answers = stream::unfold(changes, async |mut changes| {
            let answer = changes.next().await?;
            Some((Ok(answer), changes))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        self.desired(request.get_ref())?;
        let spec = MetricSpec {
            metric_name: METRIC.to_owned(),
            target_size: 1,
            target_size_float: 1.0,
        };
        Ok(Response::new(GetMetricSpecResponse {
            metric_specs: vec![spec],
        }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let request = request.get_ref();
        if ![METRIC, FORMER_METRIC].contains(&request.metric_name.as_str()) {
            return Err(Status::not_found(format!(
                "there is no metric `{}`: ask for `{METRIC}`",
                request.metric_name
            )));
        }
        let object = request.scaled_object_ref.as_ref();
        let desired = self.desired(object.unwrap_or(&ScaledObjectRef::default()))?;
        let value = MetricValue {
            metric_name: request.metric_name.clone(),
            metric_value: i64::from(desired),
            metric_value_float: f64::from(desired),
        };
        Ok(Response::new(GetMetricsResponse {
            metric_values: vec![value],
        }))
    }
}

// === impl Changes ===

impl Changes {
    /// The next answer, as soon as there is one; `None` if there will be no other.
    async fn next(&mut self) -> Option<IsActiveResponse> {
        loop {
            if self.ending.is_cancelled() {
                return None;
            }
            let desired =
                find(&self.pools.borrow_and_update(), &self.pool).map(|pool| pool.desired);
            if let Some(desired) = desired
                && self.told.replace(desired) != Some(desired)
            {
                return Some(active(desired));
            }
            tokio::select! {
                () = self.ending.cancelled() => return None,
                changed = self.pools.changed() => changed.ok()?,
            }
        }
    }
}

fn active(desired: u32) -> IsActiveResponse {
    IsActiveResponse {
        result: desired > 0,
    }
}

fn find<'a>(pools: &'a [Pool], name: &str) -> Option<&'a Pool> {
    pools.iter().find(|pool| pool.device_type.as_str() == name)
}

fn pool_name(object: &ScaledObjectRef) -> Result<&str, Status> {
    let metadata: &BTreeMap<String, String> = &object.scaler_metadata;
    match metadata.get(POOL) {
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(Status::invalid_argument(format!(
            "ScaledObject `{}/{}` names no pool: add `{POOL}: <device type>` to the metadata of its trigger",
            object.namespace, object.name
        ))),
    }
}

fn unknown(name: &str, pools: &[Pool]) -> String {
    if pools.is_empty() {
        return format!("there is no pool `{name}`, and no other yet: wait, or configure one");
    }
    let known: Vec<String> = pools
        .iter()
        .map(|pool| format!("`{}`", pool.device_type))
        .collect();
    format!(
        "there is no pool `{name}`: name one of {}",
        known.join(", ")
    )
}
