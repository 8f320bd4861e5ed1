//! Offline jobs whose records a pipeline answers.
//!
//! A job is of the version that answered its first record: a pipeline that changes ends the job, and does not answer the
//! rest otherwise. Each record is a query of its own; its steps ask as the job does, on what online queries leave.

use async_trait::async_trait;
use sextant_rpc::{Answer, Dispatch, Offline, OnlineLoad, Query, QueryError};
use sextant_types::{OfflineSpec, Route, Signature, Targets, VariantId};

use super::Pipelines;

#[async_trait]
impl Offline for Pipelines {
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError> {
        let pipeline = self.of(&spec.route);
        let pipeline = pipeline.ok_or_else(|| QueryError::not_found(&spec.route))?;
        let ready = pipeline.ready()?;
        let targets = Targets {
            latency_ms: None,
            ..spec.targets
        };
        ready
            .whole
            .load()
            .check(ready.names.model.as_str(), &targets)?;
        Ok(ready.names.variant.clone())
    }

    fn route(&self, spec: &OfflineSpec, _: &VariantId) -> Route {
        spec.route.clone()
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Dispatch::signature(self, route)
    }

    fn most_together(&self, _: &Route) -> u32 {
        1
    }

    fn online_load(&self, _: &Route) -> OnlineLoad {
        OnlineLoad {
            utilization: self.means.dispatcher.utilization(),
            slow_down: 0.0,
        }
    }

    async fn answer(&self, query: Query) -> Result<Answer, QueryError> {
        self.query(query).await
    }
}
