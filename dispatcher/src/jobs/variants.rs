//! Jobs whose records are answered by a variant.

use async_trait::async_trait;
use sextant_picture::{IndexedVariant, InputSize};
use sextant_rpc::{Answer, Dispatch, Offline, OnlineLoad, Query, QueryError};
use sextant_selection::{Demand, distance};
use sextant_types::{Code, OfflineSpec, Prefer, Route, Signature, Variant, VariantId};

use crate::{Dispatcher, reach};

/// The longest batch of a job while online queries come, ms, unless a single record takes longer. A batch that runs
/// cannot be stopped, and an online query may have to wait for it.
const LONGEST_BATCH_MS: f64 = 10.0;

/// The most records of a query while online queries come.
fn most_in_time(variant: &Variant) -> u32 {
    let profile = &variant.profile;
    let longest = profile.latency_ms(1).max(LONGEST_BATCH_MS);
    let mut rows = (1..=variant.most_together()).rev();
    rows.find(|rows| profile.latency_ms(*rows) <= longest)
        .unwrap_or(1)
}

impl Dispatcher {
    /// The cheapest variant that meets a job's accuracy and cost targets, loaded or not.
    fn choose_offline(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError> {
        let snapshot = self.snapshot.load();
        let targets = snapshot.in_figures(&spec.route, spec.targets, InputSize::default());
        let demand = Demand {
            latency_ms: f64::INFINITY,
            least_quality: targets.least_quality(),
            max_cost_per_1k_usd: targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
            rows: 1,
            // Jobs prefer low cost.
            prefer: Prefer::Cost,
        };
        let mut addressed: Vec<_> = snapshot.members(&spec.route).collect();
        if addressed.is_empty() {
            return Err(QueryError::new(
                Code::ModelNotReady,
                "nothing answers the job's route",
            ));
        }
        let measured = addressed
            .iter()
            .map(|known| (known.quality, &known.variant.accuracy));
        let is_good = addressed
            .iter()
            .any(|known| demand.least_quality.is_met_by(known.quality));
        let nearest = reach::nearest(measured, &demand.least_quality).filter(|_| !is_good);
        addressed.retain(|known| {
            known
                .entries(InputSize::default())
                .any(|entry| distance(&entry, &demand) == 0.0)
        });
        addressed
            .into_iter()
            .min_by(|a, b| {
                let cost =
                    |known: &IndexedVariant| known.least_cost_per_1k_usd(InputSize::default());
                cost(a)
                    .total_cmp(&cost(b))
                    .then_with(|| a.variant.id.cmp(&b.variant.id))
            })
            .map(|known| known.variant.id.clone())
            .ok_or_else(|| {
                let why = nearest.map_or_else(String::new, |nearest| format!(" ({nearest})"));
                let message = format!("no variant meets the job's targets{why}");
                QueryError::new(Code::TargetInfeasible, message)
            })
    }
}

// === impl Offline ===

#[async_trait]
impl Offline for Dispatcher {
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError> {
        self.choose_offline(spec)
    }

    fn route(&self, _: &OfflineSpec, chosen: &VariantId) -> Route {
        Route::Variant(chosen.clone())
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Dispatch::signature(self, route)
    }

    fn most_together(&self, route: &Route) -> u32 {
        let snapshot = self.snapshot.load();
        let is_alone = self.online.is_quiet(&self.loaded_on(route));
        let most = |known: &IndexedVariant| match is_alone {
            true => known.variant.most_together(),
            false => most_in_time(&known.variant),
        };
        let most = match route {
            Route::Variant(id) => snapshot.variant(id).map(|known| most(known)),
            Route::Application(_) | Route::Model(_) => {
                snapshot.members(route).map(|known| most(known)).max()
            }
        };
        most.unwrap_or(1)
    }

    fn online_load(&self, route: &Route) -> OnlineLoad {
        let seen = self.online.quietest(&self.loaded_on(route));
        OnlineLoad {
            utilization: seen.online_utilization,
            slow_down: seen.slow_down,
        }
    }

    async fn answer(&self, query: Query) -> Result<Answer, QueryError> {
        self.query(query).await
    }
}
