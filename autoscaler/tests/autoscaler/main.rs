//! An autoscaler over a store, workers and providers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budgets;
mod desired;
mod leaving;
mod machine;
mod machines;
mod pipelines;
mod scaling;
mod shelf;
mod world;

use std::sync::{Arc, atomic::Ordering};

use sextant_fleet::unsteady::UnsteadyStore;
use sextant_metadata::{Count, DesiredState, MetadataStore};
use sextant_types::{Digest, ModelId, VariantId, WorkerId};
use tokio::sync::watch;
