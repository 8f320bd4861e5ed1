//! What an application may use of a fleet, and its priority against others.

use serde::{Deserialize, Serialize};

/// What an application may use of a fleet. The default limits nothing and claims nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// The most that its answers may cost, US dollars an hour; 0 refuses every query that costs anything. `None`: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_hour_usd: Option<f64>,
    /// Workers' worth of load that is planned for it even without demand.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub least_workers: u32,
    /// The most workers' worth of load that is planned for it; at least `least_workers`. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_workers: Option<u32>,
    /// If there is not enough for all, a higher priority goes first. `None`: as configured, else 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its share relative to others of the same priority. `None`: as configured, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Bytes of its answers that are cached for queries with the same inputs; 0 caches none.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub cache_bytes: u64,
    /// Seconds for which an answer is cached. `None`: until others need the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ttl_s: Option<u32>,
    /// Where its models run, no matter who registered them. `None`: as workers are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// Where engines run the models of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In the worker's process.
    Worker,
    /// In a process for each artefact.
    Process,
}

impl std::str::FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "worker" => Ok(Self::Worker),
            "process" => Ok(Self::Process),
            _ => Err("write `worker` or `process`".to_owned()),
        }
    }
}

/// A setting that no application may have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{name}` is `{value}`: it must be {rule}")]
pub struct InvalidResources {
    /// The field's public name.
    pub name: &'static str,
    /// The refused value.
    pub value: f64,
    /// The values that would be accepted.
    pub rule: &'static str,
}

/// The largest budget, US dollars an hour.
pub const MOST_BUDGET_USD: f64 = 1e9;

/// The most workers that may be set for an application.
pub const MOST_WORKERS: u32 = 100_000;

/// The priority of an application that sets none.
pub const USUAL_PRIORITY: u8 = 100;

/// The most bytes of answers that an application may cache.
pub const MOST_CACHE_BYTES: u64 = 64 << 30;

/// The least size of a cache: a smaller one holds no answer.
const LEAST_CACHE_BYTES: u64 = 1 << 16;

/// The most seconds for which an answer may be cached: a year.
const MOST_CACHE_TTL_S: u32 = 366 * 24 * 3600;

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_nothing(value: &u64) -> bool {
    *value == 0
}

// === impl Resources ===

impl Resources {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses NaN, infinities, negative and unreasonably large amounts, and a greatest number below the least.
    pub fn validate(&self) -> Result<(), InvalidResources> {
        let refuse = |name, value, rule| Err(InvalidResources { name, value, rule });
        if let Some(value) = self.budget_per_hour_usd
            && !(0.0..=MOST_BUDGET_USD).contains(&value)
        {
            let rule = "a number from 0 to 1000000000, or null for no bound";
            return refuse("budget_per_hour_usd", value, rule);
        }
        if self.least_workers > MOST_WORKERS {
            let value = f64::from(self.least_workers);
            return refuse("least_workers", value, "at most 100000");
        }
        if let Some(most) = self.most_workers {
            let value = f64::from(most);
            if most > MOST_WORKERS {
                let rule = "at most 100000, or null for no bound";
                return refuse("most_workers", value, rule);
            }
            if most < self.least_workers {
                return refuse("most_workers", value, "at least `least_workers`");
            }
        }
        let is_sound = (LEAST_CACHE_BYTES..=MOST_CACHE_BYTES).contains(&self.cache_bytes);
        if self.cache_bytes != 0 && !is_sound {
            let rule = "from 65536 to 68719476736, or null for no cache";
            return refuse("cache_bytes", self.cache_bytes as f64, rule);
        }
        if let Some(value) = self.cache_ttl_s
            && !(1..=MOST_CACHE_TTL_S).contains(&value)
        {
            let rule = "from 1 to 31622400, or null for no limit";
            return refuse("cache_ttl_s", f64::from(value), rule);
        }
        if let Some(value) = self.weight
            && !(0.001..=1000.0).contains(&value)
        {
            let rule = "a number from 0.001 to 1000, or null for the usual one";
            return refuse("weight", value, rule);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(resources: Resources) -> &'static str {
        resources.validate().expect_err("it was to be refused").name
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for budget in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2e9] {
            let resources = Resources {
                budget_per_hour_usd: Some(budget),
                ..Resources::default()
            };
            assert_eq!(refused(resources), "budget_per_hour_usd", "{budget}");
        }
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0] {
            let resources = Resources {
                weight: Some(weight),
                ..Resources::default()
            };
            assert_eq!(refused(resources), "weight", "{weight}");
        }
        for cache_bytes in [1, u64::MAX] {
            let resources = Resources {
                cache_bytes,
                ..Resources::default()
            };
            assert_eq!(refused(resources), "cache_bytes", "{cache_bytes}");
        }
        let workers = |least_workers, most_workers| Resources {
            least_workers,
            most_workers,
            ..Resources::default()
        };
        assert_eq!(refused(workers(2, Some(1))), "most_workers");
        assert_eq!(refused(workers(0, Some(u32::MAX))), "most_workers");
        assert_eq!(refused(workers(u32::MAX, None)), "least_workers");
        for sound in [
            workers(0, None),
            workers(2, Some(2)),
            Resources::default(),
            Resources {
                budget_per_hour_usd: Some(0.0),
                priority: Some(255),
                weight: Some(1000.0),
                cache_bytes: 1 << 16,
                cache_ttl_s: Some(1),
                ..workers(1, None)
            },
        ] {
            assert_eq!(sound.validate(), Ok(()));
        }
    }

    #[test]
    fn nothing_set_is_written_as_nothing() {
        let text = serde_json::to_string(&Resources::default()).unwrap();
        assert_eq!(text, "{}");
        let read: Resources = serde_json::from_str(&text).unwrap();
        assert!(read.is_default());
    }
}
