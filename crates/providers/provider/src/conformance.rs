//! The properties that every provider has: one function each, over a [`Ground`] without machines.
//!
//! A backend binds them all with [`bind_provider_conformance!`](crate::bind_provider_conformance).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{Machine, MachineId, Pool, Provider, State};

mod ending;
mod growing;
mod wait;

pub use ending::{
    crashed_machine_leaves_the_list, end_is_the_end_of_those_named, ended_machines_are_replaced,
    ending_what_is_not_there_is_fine, machine_that_does_not_heed_is_ending_then_gone,
    machine_that_heeds_ends_before_its_time, successor_ends_what_was_to_end,
};
pub use growing::{
    concurrent_grows_start_no_more_than_asked, given_up_grow_is_not_lost,
    growing_to_no_more_changes_nothing, grown_pool_lists_each_machine_once,
    nothing_is_there_at_first, pools_do_not_see_each_other, since_is_recent_or_unknown,
    successor_finds_what_was_started,
};
use wait::{ids, machines, until, until_gone, until_up};

/// The program of the suite's machines, run as `sh -c MACHINE {pool}`. It prints `up`, and ends when it is asked to,
/// except in pools with `stubborn` in their name. It ends by itself after two minutes, in case a test leaves it.
pub const MACHINE: &str = "case $0 in *stubborn*) trap '' TERM;; *) trap 'exit 0' TERM;; esac; \
                           echo up; n=0; \
                           while [ $n -lt 1200 ]; do sleep 0.1; n=$((n+1)); done";

/// Longest wait for a state.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A time to end that no property awaits, ms.
const LONG_MS: u64 = 600_000;

/// What a backend provides for the suite: machines that run [`MACHINE`], and operations that the trait does not have.
#[async_trait]
pub trait Ground: Send + Sync {
    /// A provider with room for eight machines. Every call returns another one over the same machines, as after a
    /// restart.
    async fn provider(&self) -> Arc<dyn Provider>;

    /// A pool with this in its name that the provider serves and nothing else uses.
    fn pool(&self, name: &str, end_ms: u64) -> Pool;

    /// Whether the machine has printed `up`.
    async fn is_up(&self, machine: &MachineId) -> bool;

    /// Ends a machine at once, without the provider, like a fault.
    async fn crash(&self, machine: &MachineId);
}

/// Makes one `#[tokio::test]` of each property. The argument is an async expression that returns `Some(ground)`, a
/// [`Ground`](crate::conformance::Ground) without machines, or `None` if this machine lacks an optional prerequisite;
/// then it prints that.
#[macro_export]
macro_rules! bind_provider_conformance {
    ($fresh:expr) => {
        $crate::bind_provider_conformance!(@each $fresh;
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
            crashed_machine_leaves_the_list
            successor_ends_what_was_to_end
        );
    };
    (@each $fresh:expr; $($property:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                if let Some(ground) = $fresh.await {
                    $crate::conformance::$property(&ground).await;
                }
            }
        )*
    };
}
