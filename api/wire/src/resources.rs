//! What an application may use of the fleet, on the wire.

use serde::{Deserialize, Deserializer, Serialize};
use sextant_types::{Code, InvalidResources, Isolation, Resources};
use utoipa::ToSchema;

use crate::problem::Problem;

/// What an application may use of the fleet, and its claims against others. A member that is left out is
/// not set: it limits nothing and claims nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Resources)]
pub struct ResourcesBody {
    /// Most that its answers may cost, US dollars an hour; 0 refuses everything that costs anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1e9, example = 2.5)]
    pub budget_per_hour_usd: Option<f64>,
    /// Least load that the autoscaler plans for it even if nobody asks, in workers; 0 if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100_000, example = 1)]
    pub least_workers: Option<u32>,
    /// Most load that the autoscaler plans for it, in workers; at least `least_workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100_000, example = 4)]
    pub most_workers: Option<u32>,
    /// Priority: if devices cannot serve all queries, a higher one goes first. If it is left out, the
    /// configured value, else 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 100)]
    pub priority: Option<u8>,
    /// Its share of device time against others of the same priority. If it is left out, the configured value, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 1000, example = 1.0)]
    pub weight: Option<f64>,
    /// Bytes of its answers that are kept for queries with the same inputs; if it is left out, none are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 68719476736_u64, example = 16777216)]
    pub cache_bytes: Option<u64>,
    /// Seconds for which an answer is kept; if it is left out, the answer is kept until others need the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31622400, example = 60)]
    pub cache_ttl_s: Option<u32>,
    /// Where engines run its models: `process`, each in a separate process; `worker`, in the worker's
    /// process. If it is left out, the setting `worker.isolation` of the workers decides. Loaded models move
    /// to the other process and answer meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationBody>,
}

/// Where engines run the models of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Isolation)]
pub enum IsolationBody {
    /// In the worker.
    Worker,
    /// In processes of their own.
    Process,
}

/// The changes: members that are left out stay as they are, `null` removes a value.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResourcesChange)]
pub struct ResourcesChangeBody {
    /// Most that its answers may cost, US dollars an hour; 0 refuses everything that costs anything.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1e9, example = 2.5)]
    budget_per_hour_usd: Option<Option<f64>>,
    /// Least load that the autoscaler plans for it even if nobody asks, in workers.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 100_000, example = 1)]
    least_workers: Option<Option<u32>>,
    /// Most load that the autoscaler plans for it, in workers; at least `least_workers`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 100_000, example = 4)]
    most_workers: Option<Option<u32>>,
    /// Priority: if devices cannot serve all queries, a higher one goes first.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u8>, example = 100)]
    priority: Option<Option<u8>>,
    /// Its share of device time against others of the same priority.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1000, example = 1.0)]
    weight: Option<Option<f64>>,
    /// Bytes of its answers that are kept for queries with the same inputs.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 65536, maximum = 68719476736_u64, example = 16777216)]
    cache_bytes: Option<Option<u64>>,
    /// Seconds for which an answer is kept.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31622400, example = 60)]
    cache_ttl_s: Option<Option<u32>>,
    /// Where engines run its models: `process`, each in a separate process; `worker`, in the worker's process.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<IsolationBody>)]
    isolation: Option<Option<IsolationBody>>,
}

/// Distinguishes `null` from a member that was left out.
pub fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

// === impl ResourcesBody ===

impl ResourcesBody {
    /// Checks the values.
    pub fn read(self) -> Result<Resources, Problem> {
        let resources = Resources {
            budget_per_hour_usd: self.budget_per_hour_usd,
            least_workers: self.least_workers.unwrap_or(0),
            most_workers: self.most_workers,
            priority: self.priority,
            weight: self.weight,
            cache_bytes: self.cache_bytes.unwrap_or(0),
            cache_ttl_s: self.cache_ttl_s,
            isolation: self.isolation.map(Isolation::from),
        };
        resources.validate()?;
        Ok(resources)
    }

    /// The resources that are set; `None` if none is.
    pub fn show(resources: &Resources) -> Option<Self> {
        let shown = Self {
            budget_per_hour_usd: resources.budget_per_hour_usd,
            least_workers: Some(resources.least_workers).filter(|least| *least > 0),
            most_workers: resources.most_workers,
            priority: resources.priority,
            weight: resources.weight,
            cache_bytes: Some(resources.cache_bytes).filter(|bytes| *bytes > 0),
            cache_ttl_s: resources.cache_ttl_s,
            isolation: resources.isolation.map(IsolationBody::from),
        };
        (!resources.is_default()).then_some(shown)
    }
}

// === impl ResourcesChangeBody ===

impl ResourcesChangeBody {
    /// The resources after the change.
    pub fn apply(self, to: Resources) -> Resources {
        let least = self
            .least_workers
            .unwrap_or(Some(to.least_workers))
            .unwrap_or(0);
        let cache = self
            .cache_bytes
            .unwrap_or(Some(to.cache_bytes))
            .unwrap_or(0);
        let isolation = self.isolation.map(|given| given.map(Isolation::from));
        Resources {
            budget_per_hour_usd: self.budget_per_hour_usd.unwrap_or(to.budget_per_hour_usd),
            least_workers: least,
            most_workers: self.most_workers.unwrap_or(to.most_workers),
            priority: self.priority.unwrap_or(to.priority),
            weight: self.weight.unwrap_or(to.weight),
            cache_bytes: cache,
            cache_ttl_s: self.cache_ttl_s.unwrap_or(to.cache_ttl_s),
            isolation: isolation.unwrap_or(to.isolation),
        }
    }
}

// === impl IsolationBody ===

impl From<IsolationBody> for Isolation {
    fn from(body: IsolationBody) -> Self {
        match body {
            IsolationBody::Worker => Self::Worker,
            IsolationBody::Process => Self::Process,
        }
    }
}

impl From<Isolation> for IsolationBody {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Worker => Self::Worker,
            Isolation::Process => Self::Process,
        }
    }
}

// === impl Problem ===

impl From<InvalidResources> for Problem {
    fn from(error: InvalidResources) -> Self {
        let field = format!("resources.{}", error.name);
        Self::new(Code::InvalidRequest, error.to_string()).field(field)
    }
}
