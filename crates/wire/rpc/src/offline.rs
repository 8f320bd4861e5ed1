//! What answers the records of offline jobs.

use async_trait::async_trait;
use sextant_types::{OfflineSpec, Route, Signature, VariantId};

use crate::{Answer, Query, QueryError};

/// The load that online queries put on the workers that a job also needs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OnlineLoad {
    /// Share of the workers' time over the last second, 0 to 1.
    pub utilization: f64,
    /// Factor by which runs take longer than their profiles say; 0 if nothing is known.
    pub slow_down: f64,
}

/// What answers the records of offline jobs: the variants of a dispatcher, or the pipelines of a front end.
///
/// Contract: one variant or pipeline answers all records of a job. It is chosen once and stored with the job, and a
/// runner that continues the job asks the same one. Queries are marked as [`offline`](Query::offline).
#[async_trait]
pub trait Offline: Send + Sync {
    /// Chooses what answers the records of a job: a variant, or a version of a pipeline.
    ///
    /// # Errors
    /// Why nothing can answer them, or that nothing meets the job's targets.
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError>;

    /// The route of the queries of a job whose records `chosen` answers.
    fn route(&self, spec: &OfflineSpec, chosen: &VariantId) -> Route;

    /// Inputs and outputs of the route.
    ///
    /// # Errors
    /// If it does not exist, or is not known yet.
    fn signature(&self, route: &Route) -> Result<Signature, QueryError>;

    /// Largest number of records that may share a query now: fewer while there are online queries that would wait for
    /// them.
    fn most_together(&self, route: &Route) -> u32;

    /// The load of online queries on the least loaded workers on which the route is answered.
    fn online_load(&self, route: &Route) -> OnlineLoad;

    /// Answers one query of a job.
    ///
    /// # Errors
    /// Those of [`Dispatch::query`](crate::Dispatch::query).
    async fn answer(&self, query: Query) -> Result<Answer, QueryError>;
}
