//! A worker that did one thing once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sextant_rpc::{
    ActionKind, ActionStats, Infer, InferError, Load, LoadTimings, Mispredictions, Pages,
    VariantUsage, Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{EngineName, VariantId, WorkerId};

pub struct Idle;

#[async_trait]
impl Work for Idle {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: WorkerId::new("idle").expect("a name"),
            cores: 1,
            engines: vec![EngineName("emulated".to_owned())],
            pages: Pages {
                page_bytes: 16 << 20,
                total: 1376,
                free: 1369,
            },
            utilization: 0.5,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        Vec::new()
    }

    fn infer(&self, infer: Infer) {
        (infer.done)(Err(InferError::NotLoaded(infer.variant)));
    }

    async fn load(&self, _: Load) -> Result<LoadTimings, WorkError> {
        Err(WorkError::ShuttingDown)
    }

    async fn unload(&self, _: &VariantId) -> Result<(), WorkError> {
        Err(WorkError::ShuttingDown)
    }

    async fn leave(&self) -> Result<(), WorkError> {
        Err(WorkError::ShuttingDown)
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        let action = ActionStats {
            succeeded: 1000,
            failed: BTreeMap::from([("too_late", 3)]),
            under_predicted: Mispredictions {
                count: 40,
                p50_us: 10.0,
                p99_us: 55.0,
                p999_us: 90.0,
                max_us: 120.5,
            },
            ..ActionStats::default()
        };
        Ok(WorkerStats {
            actions: BTreeMap::from([(ActionKind::Infer, action)]),
        })
    }
}
