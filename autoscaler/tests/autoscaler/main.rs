//! An autoscaler over a store, workers and providers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budgets;
mod leaving;
mod machine;
mod scaling;
mod wanted;
mod world;

use std::sync::{Arc, atomic::Ordering};

use sextant_fleet::unsteady::UnsteadyStore;
use sextant_metadata::{Count, MetadataStore, Wanted};
use sextant_types::{Digest, ModelId, VariantId, WorkerId};
use tokio::sync::watch;
