//! The desired state, the present state and the demand at one moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;
use sextant_metadata::{
    ApplicationDemand, Count, Demand, DesiredState, DesiredVariant, DeviceTypes, Instance,
    InstanceState, Pool, Snapshot,
};
use sextant_types::{ApplicationId, DeviceTypeName, TargetClass, VariantId};
use utoipa::ToSchema;

use super::class::ClassBody;
use crate::ApiState;

/// The desired and the actual number of workers and instances.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Scaling)]
pub struct ScalingBody {
    /// The fencing token of the autoscaler that set the desired counts, see `/v1/cluster`; null before an
    /// autoscaler has set any. All desired counts are then null.
    #[schema(required)]
    desired_token: Option<u64>,
    /// Former name of `desired_token`, until the next release.
    #[schema(required, deprecated)]
    wanted_token: Option<u64>,
    /// Types of workers that are desired or there, sorted by type.
    pools: Vec<PoolBody>,
    /// Variants that are desired, loaded or failed, sorted by name.
    variants: Vec<VariantBody>,
    /// The demand; null before a dispatcher has counted it.
    #[schema(required)]
    demand: Option<DemandBody>,
    /// What all workers cost.
    cost_per_hour_usd: CostBody,
    /// Applications for which the autoscaler plans less than they are asked, sorted by name; empty if there are none.
    held_back: Vec<HeldBackBody>,
}

/// An application for which the autoscaler plans less than it is asked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingHeldBack)]
pub struct HeldBackBody {
    /// Its name.
    application: String,
    /// The cause: `budget`, `most_workers`, or `others`, which means that other applications go first or have
    /// their share if devices cannot serve all queries.
    limit: &'static str,
    /// Why, in a sentence.
    reason: String,
}

/// Workers of one type. Workers of an earlier version that do not say their type are in no pool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingPool)]
pub struct PoolBody {
    /// The type of their devices, which is the name of the pool.
    device_type: String,
    /// The desired number of workers; null if no autoscaler has said it.
    #[schema(required)]
    desired: Option<u32>,
    /// Former name of `desired`, until the next release.
    #[schema(required, deprecated)]
    wanted: Option<u32>,
    /// Fewest workers; null if no autoscaler has said it.
    #[schema(required)]
    least: Option<u32>,
    /// Most workers; null if no autoscaler has said it.
    #[schema(required)]
    most: Option<u32>,
    /// Workers that are not leaving.
    up: u32,
    /// Workers that are being taken out and still serve, until the variants that only they have are loaded elsewhere.
    leaving: u32,
    /// Workers that finish what they have accepted and then leave.
    draining: u32,
    /// What starts and ends them; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// Price of one worker, US dollars an hour; absent before one was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_hour_usd: Option<f64>,
    /// Time that a new worker takes to start, seconds; absent before one was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_s: Option<f64>,
    /// The error of the last call to the provider, and what to do; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// A variant on all workers together.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingVariant)]
pub struct VariantBody {
    /// Its name.
    variant: String,
    /// The application to which it belongs; absent if the variant is no longer published and is loaded nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// Workers that the demand needs with it, 0 if it is kept warm before anyone asks; null if it is not desired.
    #[schema(required)]
    needed: Option<u32>,
    /// The desired number of workers that have it loaded; null if it is not desired.
    #[schema(required)]
    desired: Option<WorkersBody>,
    /// Former name of `desired`, until the next release.
    #[schema(required, deprecated)]
    wanted: Option<WorkersBody>,
    /// Workers on which an instance serves.
    ready: u32,
    /// Workers that load it.
    loading: u32,
    /// Workers on which it could not be loaded, or failed.
    failed: u32,
    /// Whether it is never unloaded in favour of another variant; null if it is not desired.
    #[schema(required)]
    pinned: Option<bool>,
}

/// `everywhere`: every worker that can run it. A number: so many of these workers, or all if there are fewer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = DesiredWorkers)]
pub enum WorkersBody {
    #[schema(title = "name")]
    Name(&'static str),
    #[schema(title = "number")]
    Number(u32),
}

/// What the leading dispatcher counted over a time that has just ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingDemand)]
pub struct DemandBody {
    /// Length of the time, milliseconds.
    window_ms: u64,
    /// Sorted by application and targets.
    classes: Vec<ClassDemandBody>,
}

/// Queries of an application with similar targets.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingClass)]
pub struct ClassDemandBody {
    /// For which application.
    application: String,
    #[serde(flatten)]
    class: ClassBody,
    /// Rate of all queries, including refused ones, queries a second.
    offered_rps: f64,
    /// Queries that were answered in time.
    answered: u64,
    /// Of these, those that needed no device, because the answer had been kept.
    kept: u64,
    /// Queries that were answered too late.
    late: u64,
    /// Queries that were refused or failed, by error code.
    refused: BTreeMap<&'static str, u64>,
}

/// What workers cost, US dollars an hour.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalingCost)]
pub struct CostBody {
    /// Cost of the desired workers; null if no autoscaler has said how many are desired, or if a pool's price
    /// is not known yet.
    #[schema(required)]
    desired: Option<f64>,
    /// Former name of `desired`, until the next release.
    #[schema(required, deprecated)]
    wanted: Option<f64>,
    /// Workers that exist, including leaving and draining ones.
    actual: f64,
}

/// Counts of the queries of a class.
#[derive(Default)]
struct ClassCounts {
    offered: u64,
    answered: u64,
    kept: u64,
    late: u64,
    refused: BTreeMap<&'static str, u64>,
}

// === impl ScalingBody ===

impl ScalingBody {
    /// The overview of a snapshot.
    pub fn new(state: &ApiState, snapshot: &Snapshot) -> Self {
        let desired = snapshot.desired.as_deref();
        let pools = pools(snapshot);
        let demand = snapshot.demand.as_deref();
        Self {
            desired_token: desired.map(|desired| desired.token),
            wanted_token: desired.map(|desired| desired.token),
            cost_per_hour_usd: CostBody::of(&pools),
            pools,
            variants: variants(snapshot),
            held_back: desired.map_or_else(Vec::new, held_back),
            demand: demand.map(|demand| DemandBody::new(state, demand)),
        }
    }
}

fn held_back(desired: &DesiredState) -> Vec<HeldBackBody> {
    let held_back = desired.held_back.iter().map(|of| HeldBackBody {
        application: of.application.to_string(),
        limit: of.limit.name(),
        reason: of.reason.to_string(),
    });
    held_back.collect()
}

fn pools(snapshot: &Snapshot) -> Vec<PoolBody> {
    let types = DeviceTypes::of(&snapshot.workers);
    let desired = snapshot.desired.as_deref();
    let pools = desired.map_or(&[][..], |desired| &desired.pools);
    let desired_names = pools.iter().map(|pool| &pool.device_type);
    let names: BTreeSet<&DeviceTypeName> = desired_names
        .chain(types.all().map(|it| &it.name))
        .collect();
    let pool = |name: &DeviceTypeName| {
        let pool = desired.and_then(|desired| desired.pool(name));
        PoolBody::new(name, pool, &types).count(snapshot)
    };
    names.into_iter().map(pool).collect()
}

fn variants(snapshot: &Snapshot) -> Vec<VariantBody> {
    let published = snapshot.variants.iter();
    let applications: BTreeMap<&VariantId, &ApplicationId> = published
        .map(|variant| (&variant.id, &variant.application))
        .collect();
    let mut bodies: BTreeMap<&VariantId, VariantBody> = BTreeMap::new();
    let desired = snapshot
        .desired
        .iter()
        .flat_map(|desired| &desired.variants);
    for desired in desired {
        let application = applications.get(&desired.variant).copied();
        let body = VariantBody::new(&desired.variant, application).with(desired);
        bodies.insert(&desired.variant, body);
    }
    for instance in &snapshot.instances {
        let (id, application) = (&instance.key.variant, &instance.application);
        if is_counted(instance.state) {
            let body = bodies.entry(id);
            body.or_insert_with(|| VariantBody::new(id, Some(application)))
                .add(instance);
        }
    }
    bodies.into_values().collect()
}

fn is_counted(state: InstanceState) -> bool {
    state.is_serving() || matches!(state, InstanceState::Loading | InstanceState::Failed)
}

// === impl PoolBody ===

impl PoolBody {
    fn new(name: &DeviceTypeName, pool: Option<&Pool>, types: &DeviceTypes) -> Self {
        // The price that workers announce is the one that is paid.
        let announced = types.get(name);
        let facts = announced.or_else(|| pool?.facts.as_ref());
        let text = |text: &Arc<str>| text.to_string();
        Self {
            device_type: name.to_string(),
            desired: pool.map(|pool| pool.desired),
            wanted: pool.map(|pool| pool.desired),
            least: pool.map(|pool| pool.least),
            most: pool.map(|pool| pool.most),
            up: 0,
            leaving: 0,
            draining: 0,
            provider: pool.and_then(|pool| pool.provider.as_ref()).map(text),
            price_per_hour_usd: facts.map(|facts| facts.price_per_hour_usd),
            start_s: facts.map(|facts| facts.start_ms as f64 / 1000.0),
            trouble: pool.and_then(|pool| pool.trouble.as_ref()).map(text),
        }
    }

    fn count(mut self, snapshot: &Snapshot) -> Self {
        for worker in &snapshot.workers {
            let own = worker.record.device_type.as_ref();
            if own.is_some_and(|own| own.name.as_str() == self.device_type) {
                let count = match (worker.record.draining, worker.leaving) {
                    (true, _) => &mut self.draining,
                    (false, true) => &mut self.leaving,
                    (false, false) => &mut self.up,
                };
                *count += 1;
            }
        }
        self
    }
}

// === impl VariantBody ===

impl VariantBody {
    fn new(id: &VariantId, application: Option<&ApplicationId>) -> Self {
        Self {
            variant: id.to_string(),
            application: application.map(ToString::to_string),
            needed: None,
            desired: None,
            wanted: None,
            ready: 0,
            loading: 0,
            failed: 0,
            pinned: None,
        }
    }

    fn with(self, desired: &DesiredVariant) -> Self {
        Self {
            needed: Some(desired.needed),
            desired: Some(desired.workers.into()),
            wanted: Some(desired.workers.into()),
            pinned: Some(desired.pinned),
            ..self
        }
    }

    fn add(&mut self, instance: &Instance) {
        self.application
            .get_or_insert_with(|| instance.application.to_string());
        self.ready += u32::from(instance.state.is_serving());
        self.loading += u32::from(instance.state == InstanceState::Loading);
        self.failed += u32::from(instance.state == InstanceState::Failed);
    }
}

impl From<Count> for WorkersBody {
    fn from(count: Count) -> Self {
        match count {
            Count::Everywhere => Self::Name("everywhere"),
            Count::Workers(count) => Self::Number(count),
        }
    }
}

// === impl DemandBody ===

impl DemandBody {
    fn new(state: &ApiState, demand: &Demand) -> Self {
        let mut classes: BTreeMap<(&ApplicationId, TargetClass), ClassCounts> = BTreeMap::new();
        for row in &demand.applications {
            let counted = classes.entry((&row.application, row.class));
            counted.or_default().add(row);
        }
        let window_s = demand.window_ms as f64 / 1000.0;
        let body = |((application, class), counted): ((&ApplicationId, _), ClassCounts)| {
            let class = ClassBody::new(state, application, &class);
            counted.over(window_s, application, class)
        };
        Self {
            window_ms: demand.window_ms,
            classes: classes.into_iter().map(body).collect(),
        }
    }
}

impl ClassCounts {
    fn add(&mut self, row: &ApplicationDemand) {
        self.offered += row.offered;
        self.answered += row.answered;
        self.kept += row.kept;
        self.late += row.late;
        for (code, count) in &row.refused {
            *self.refused.entry(code.as_str()).or_default() += count;
        }
    }

    fn over(self, window_s: f64, application: &ApplicationId, class: ClassBody) -> ClassDemandBody {
        let offered = self.offered as f64;
        ClassDemandBody {
            application: application.to_string(),
            class,
            offered_rps: if window_s > 0.0 {
                offered / window_s
            } else {
                0.0
            },
            answered: self.answered,
            kept: self.kept,
            late: self.late,
            refused: self.refused,
        }
    }
}

// === impl CostBody ===

impl CostBody {
    fn of(pools: &[PoolBody]) -> Self {
        let price = |pool: &PoolBody| pool.price_per_hour_usd;
        let said = pools
            .iter()
            .filter_map(|pool| Some((pool, pool.desired?)))
            .filter(|(_, desired)| *desired > 0);
        let is_said = pools.iter().any(|pool| pool.desired.is_some());
        let desired = said.map(|(pool, desired)| Some(price(pool)? * f64::from(desired)));
        let there = pools.iter().map(|pool| {
            // A worker that is up has announced its price.
            price(pool).unwrap_or_default() * f64::from(pool.up + pool.leaving + pool.draining)
        });
        let desired = desired.sum::<Option<f64>>().filter(|_| is_said);
        Self {
            desired,
            wanted: desired,
            actual: there.sum(),
        }
    }
}
