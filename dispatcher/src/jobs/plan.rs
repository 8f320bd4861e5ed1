//! What was settled when the job first ran.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_objects::ObjectPath;
use sextant_policies::select::{Demand, distance};
use sextant_rpc::{OfflineSpec, Route};
use sextant_types::{Code, VariantId};

use super::{JobService, run::Stop};
use crate::{Dispatcher, index::Known};

/// Kept at `{output}.parts/plan.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Which job the parts belong to: parts of another job are not reused.
    pub(crate) job: String,
    /// The variant that answers all records.
    pub(crate) variant: VariantId,
    /// Records in the input.
    pub(crate) records: u64,
    /// Records per chunk.
    pub(crate) chunk: u32,
}

impl Plan {
    /// Chunks in all.
    pub(crate) fn chunks(&self) -> u64 {
        self.records.div_ceil(u64::from(self.chunk.max(1)))
    }
}

/// Where a part lies.
pub(crate) fn part_path(spec: &OfflineSpec, name: &str) -> Result<ObjectPath, Stop> {
    let path = format!("{}.parts/{name}", spec.output);
    ObjectPath::parse(&path).map_err(|error| Stop::failed(Code::InvalidPath, error.to_string()))
}

impl JobService {
    /// Reads the plan of an earlier run of the same job, or settles it now.
    pub(crate) async fn plan(
        &self,
        job: &str,
        spec: &OfflineSpec,
        records: u64,
    ) -> Result<Plan, Stop> {
        let path = part_path(spec, "plan.json")?;
        if self.objects.stat(&path).await?.is_some() {
            let stored = self.objects.get(&path).await?;
            match serde_json::from_slice::<Plan>(&stored) {
                Ok(plan) if plan.job == job => return Ok(plan),
                _ => tracing::info!(job, "parts of another job are replaced"),
            }
        }
        let variant = self.dispatcher.choose_offline(spec)?;
        let chunk = spec.chunk.max(1);
        let plan = Plan {
            job: job.to_owned(),
            variant,
            records,
            chunk,
        };
        let text = serde_json::to_vec(&plan)
            .map_err(|error| Stop::failed(Code::Internal, error.to_string()))?;
        self.objects.put(&path, Bytes::from(text)).await?;
        Ok(plan)
    }
}

impl Dispatcher {
    /// The cheapest variant that meets a job's accuracy and cost targets, loaded or not.
    fn choose_offline(&self, spec: &OfflineSpec) -> Result<VariantId, Stop> {
        let snapshot = self.snapshot.load();
        let demand = Demand {
            latency_ms: f64::INFINITY,
            min_quality: spec.targets.min_quality.unwrap_or(f64::NEG_INFINITY),
            max_cost_per_1k_usd: spec.targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
            rows: 1,
        };
        let addressed = |known: &&std::sync::Arc<Known>| match &spec.route {
            Route::Application(id) => known.variant.application == *id,
            Route::Model(id) => known.variant.model == *id,
            Route::Variant(id) => known.variant.id == *id,
        };
        let named = matches!(spec.route, Route::Variant(_));
        let mut addressed: Vec<_> = snapshot.all().filter(addressed).collect();
        if addressed.is_empty() {
            return Err(Stop::failed(
                Code::ModelNotReady,
                "nothing answers the job's route",
            ));
        }
        addressed.retain(|known| named || distance(&known.entry(), &demand) == 0.0);
        addressed
            .into_iter()
            .min_by(|a, b| {
                let cost = |known: &Known| known.variant.cost_per_1k_usd;
                cost(a)
                    .total_cmp(&cost(b))
                    .then_with(|| a.variant.id.cmp(&b.variant.id))
            })
            .map(|known| known.variant.id.clone())
            .ok_or_else(|| {
                Stop::failed(Code::TargetInfeasible, "no variant meets the job's targets")
            })
    }
}
