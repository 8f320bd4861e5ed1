//! Offline jobs whose records a pipeline answers.
//!
//! A job belongs to the version that answered its first record. If the pipeline changes, the job ends, so that no other
//! version answers the rest. Each record is a query of its own. Its steps ask with the job's terms, and run on what
//! online queries leave.

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
