//! The suite of the trait.
//!
//! Kubernetes replaces a pod that ends by itself, so the property about a crash is a separate test, in
//! `deployments.rs`. The properties about ending the named machines and replacing them at once do not hold for
//! StatefulSets: their last pods end, and names are reused.

use std::sync::Arc;

use async_trait::async_trait;
use sextant_provider::{
    MachineId, Pool, Provider,
    conformance::{self, Ground},
};
use sextant_provider_kubernetes::{Kind, Kubernetes, Workload};
use sextant_types::DeviceTypeName;

use super::support::{Cluster, settings};

/// The pools of the suite.
const POOLS: [&str; 15] = [
    "none",
    "grown",
    "no-more",
    "since",
    "concurrent",
    "given-up",
    "successor",
    "pool",
    "pool-1",
    "named",
    "stubborn-replaced",
    "heeds",
    "stubborn",
    "absent",
    "stubborn-successor",
];

struct PlayedCluster {
    cluster: Cluster,
    kind: Kind,
}

impl PlayedCluster {
    fn new(kind: Kind) -> Self {
        let cluster = Cluster::default();
        for pool in POOLS {
            cluster.world().add(pool, kind, 0, 600_000, true);
        }
        Self { cluster, kind }
    }
}

#[async_trait]
impl Ground for PlayedCluster {
    async fn provider(&self) -> Arc<dyn Provider> {
        let pools = POOLS.map(|pool| {
            let workload = Workload {
                kind: self.kind,
                name: pool.to_owned(),
            };
            (pool.to_owned(), workload)
        });
        Arc::new(Kubernetes::new(self.cluster.client(), settings(pools)))
    }

    fn pool(&self, name: &str, end_ms: u64) -> Pool {
        let heeds = !name.contains("stubborn");
        assert!(POOLS.contains(&name), "a pool that was not made: {name}");
        self.cluster.world().add(name, self.kind, 0, end_ms, heeds);
        Pool {
            device_type: DeviceTypeName::new(name).expect("a name"),
            end_ms,
        }
    }

    async fn is_up(&self, machine: &MachineId) -> bool {
        let name = machine.0.split('/').next().unwrap_or_default();
        let world = self.cluster.world();
        world
            .pods
            .get(name)
            .is_some_and(super::support::Fake::is_ready)
    }

    async fn crash(&self, machine: &MachineId) {
        panic!("no property that is bound here crashes `{}`", machine.0);
    }
}

macro_rules! bind {
    ($kind:expr; $($property:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                conformance::$property(&PlayedCluster::new($kind)).await;
            }
        )*
    };
}

mod deployment {
    use super::{Kind, PlayedCluster, conformance};

    bind!(Kind::Deployment;
        nothing_is_there_at_first
        grown_pool_lists_each_machine_once
        growing_to_no_more_changes_nothing
        since_is_recent_or_unknown
        concurrent_grows_start_no_more_than_asked
        given_up_grow_is_not_lost
        successor_finds_what_was_started
        pools_do_not_see_each_other
        end_is_the_end_of_those_named
        ended_machines_are_replaced
        machine_that_heeds_ends_before_its_time
        machine_that_does_not_heed_is_ending_then_gone
        ending_what_is_not_there_is_fine
        successor_ends_what_was_to_end
    );
}

mod stateful_set {
    use super::{Kind, PlayedCluster, conformance};

    bind!(Kind::StatefulSet;
        nothing_is_there_at_first
        grown_pool_lists_each_machine_once
        growing_to_no_more_changes_nothing
        since_is_recent_or_unknown
        concurrent_grows_start_no_more_than_asked
        given_up_grow_is_not_lost
        successor_finds_what_was_started
        pools_do_not_see_each_other
        machine_that_heeds_ends_before_its_time
        machine_that_does_not_heed_is_ending_then_gone
        successor_ends_what_was_to_end
    );
}
