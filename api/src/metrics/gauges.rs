//! What is looked up in the stores at each scrape.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use sextant_metadata::{Instance, InstanceState, MetadataStore};
use sextant_registry::{JobFilter, JobKind, JobState};

use crate::problem::Problem;

/// Unfinished jobs are counted up to this many in each state.
const MOST_JOBS: u32 = 1000;

/// Set from the stores at each scrape.
pub struct Gauges {
    instances: Family<StateLabels, Gauge>,
    jobs: Family<JobLabels, Gauge>,
    workers: Gauge,
    variants: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    kind: &'static str,
    state: &'static str,
}

/// A count as a gauge takes it.
pub fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

// === impl Gauges ===

impl Gauges {
    /// Makes them known to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let gauges = Self {
            instances: Family::default(),
            jobs: Family::default(),
            workers: Gauge::default(),
            variants: Gauge::default(),
        };
        registry.register("instances", "Instances, by state", gauges.instances.clone());
        registry.register(
            "jobs",
            "Unfinished jobs, by kind and state",
            gauges.jobs.clone(),
        );
        registry.register(
            "workers",
            "Workers that hold a lease",
            gauges.workers.clone(),
        );
        registry.register("variants", "Published variants", gauges.variants.clone());
        gauges
    }

    /// Sets them from the stores.
    pub async fn look(
        &self,
        metadata: &dyn MetadataStore,
        registry: &sextant_registry::Registry,
    ) -> Result<(), Problem> {
        let snapshot = metadata.snapshot().await?;
        self.workers.set(gauge(snapshot.workers.len()));
        self.variants.set(gauge(snapshot.variants.len()));
        for state in InstanceState::ALL {
            let of_state = |instance: &&Instance| instance.state == state;
            let count = snapshot.instances.iter().filter(of_state).count();
            let state = state.as_str();
            self.instances
                .get_or_create(&StateLabels { state })
                .set(gauge(count));
        }
        self.look_at_jobs(registry).await
    }

    async fn look_at_jobs(&self, registry: &sextant_registry::Registry) -> Result<(), Problem> {
        for state in JobState::ALL.into_iter().filter(|state| !state.is_final()) {
            let filter = JobFilter {
                state: Some(state),
                limit: Some(MOST_JOBS),
                ..JobFilter::default()
            };
            let jobs = registry.jobs(&filter).await?;
            for kind in JobKind::ALL {
                let count = jobs.iter().filter(|job| job.kind == kind).count();
                let (kind, state) = (kind.as_str(), state.as_str());
                let labels = JobLabels { kind, state };
                self.jobs.get_or_create(&labels).set(gauge(count));
            }
        }
        Ok(())
    }
}
