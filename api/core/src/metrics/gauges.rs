//! Gauges that are read from the stores at each scrape.
//!
//! If a store is unreachable, its own gauges keep their last values, and `store_up` reports it. The other metrics go
//! on, and show what the failure does to the service.

use std::{future::Future, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use sextant_metadata::{Instance, InstanceState, MetadataStore};
use sextant_objects::ObjectStore;
use sextant_registry::{JobFilter, JobKind, JobState};
use sextant_types::Digest;
use tokio::time::timeout;

use crate::problem::Problem;

/// A store that takes longer counts as unreachable: scrapers do not wait long either.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most unfinished jobs that are counted in each state.
const MOST_JOBS: u32 = 1000;

/// Gauges that are set from the stores at each scrape.
pub struct Gauges {
    instances: Family<StateLabels, Gauge>,
    jobs: Family<JobLabels, Gauge>,
    workers: Gauge,
    variants: Gauge,
    stores: Family<StoreLabels, Gauge>,
    room: Family<RoomLabels, Gauge>,
}

/// The stores that are read.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    pub metadata: &'a dyn MetadataStore,
    pub registry: &'a sextant_registry::Registry,
    pub objects: &'a dyn ObjectStore,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    store: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoomLabels {
    room: &'static str,
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

/// A count as the value of a gauge.
pub fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

// === impl Gauges ===

impl Gauges {
    /// Registers the gauges.
    pub fn register(registry: &mut Registry) -> Self {
        let gauges = Self {
            instances: Family::default(),
            jobs: Family::default(),
            workers: Gauge::default(),
            variants: Gauge::default(),
            stores: Family::default(),
            room: Family::default(),
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
        registry.register(
            "store_up",
            "Whether a store answered this scrape: 1 or 0",
            gauges.stores.clone(),
        );
        registry.register(
            "artefact_store_bytes",
            "Bytes that the artefact store holds (stored) and still has room for (free)",
            gauges.room.clone(),
        );
        gauges
    }

    /// Sets them from the stores.
    pub async fn look(&self, stores: Stores<'_>) {
        tokio::join!(
            self.ask("metadata", self.look_at_metadata(stores.metadata)),
            self.ask("registry", self.look_at_jobs(stores.registry)),
            self.ask("objects", self.look_at_objects(stores.objects)),
        );
    }

    /// Reads a store, and sets whether it answers.
    async fn ask(&self, store: &'static str, look: impl Future<Output = Result<(), Problem>>) {
        let is_up = matches!(timeout(PATIENCE, look).await, Ok(Ok(())));
        let gauge = self.stores.get_or_create(&StoreLabels { store });
        gauge.set(is_up.into());
    }

    async fn look_at_metadata(&self, metadata: &dyn MetadataStore) -> Result<(), Problem> {
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
        Ok(())
    }

    /// Asks for an object that does not exist: any answer shows that the store is up.
    async fn look_at_objects(&self, objects: &dyn ObjectStore) -> Result<(), Problem> {
        objects.stat_blob(&Digest::from_bytes([0; 32])).await?;
        if let Some(room) = objects.room() {
            for (name, bytes) in [("stored", room.stored_bytes), ("free", room.free_bytes)] {
                let gauge = self.room.get_or_create(&RoomLabels { room: name });
                gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
        Ok(())
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
