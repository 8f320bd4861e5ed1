//! Who answers the records of offline jobs.

use async_trait::async_trait;
use sextant_types::{OfflineSpec, Route, Signature, VariantId};

use crate::{Answer, Query, QueryError};

/// What online queries take of the workers that a job needs as well.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OnlineLoad {
    /// Share of the workers' time over the last second, 0 to 1.
    pub utilization: f64,
    /// How many times as long as their profiles say they take; 0 where nothing is known.
    pub slow_down: f64,
}

/// Who answers the records of offline jobs: the variants of a dispatcher, or the pipelines of a front end.
///
/// Contract: one answers all records of a job. Who that is, is chosen once and kept with the job; a runner that goes on with
/// the job asks the same one. Queries are marked as [`offline`](Query::offline).
#[async_trait]
pub trait Offline: Send + Sync {
    /// Who answers the records of a job: a variant, or a pipeline in its version.
    ///
    /// # Errors
    /// Why nobody can answer them, or that nobody meets the job's targets.
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError>;

    /// Whom the queries of a job address whose records `chosen` answers.
    fn route(&self, spec: &OfflineSpec, chosen: &VariantId) -> Route;

    /// Inputs and outputs of what a route addresses.
    ///
    /// # Errors
    /// When there is no such thing, or it is not known yet.
    fn signature(&self, route: &Route) -> Result<Signature, QueryError>;

    /// Most records that may share a query now: fewer while online queries come that would wait for them.
    fn most_together(&self, route: &Route) -> u32;

    /// What online queries take of those workers on which the route is answered and which they leave most of.
    fn online_load(&self, route: &Route) -> OnlineLoad;

    /// Answers one query of a job.
    ///
    /// # Errors
    /// As [`Dispatch::query`](crate::Dispatch::query).
    async fn answer(&self, query: Query) -> Result<Answer, QueryError>;
}
