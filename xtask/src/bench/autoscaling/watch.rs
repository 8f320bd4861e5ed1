//! The machines and workers that exist while queries come.
//!
//! A machine exists from its provider's order until the end of its process, because it would be paid for that time. The
//! provider records the order; the end is looked for several times a second.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use serde_json::Value;

use super::service::{POOLS, Service};
use crate::{http::Connection, shell};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// A machine that existed; times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    /// Position of its pool.
    pub pool: usize,
    /// When it was ordered.
    pub since_ms: u64,
    /// When its worker was first seen.
    pub up_ms: Option<u64>,
    /// When it was first seen that its process had ended.
    pub gone_ms: Option<u64>,
    process: Option<u64>,
    /// Whether it was told to end.
    ends: bool,
}

/// How many machines of each pool there were, and how many were desired.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When they were counted, milliseconds since 1970.
    pub at_ms: u64,
    /// Machines that start or are up, by pool.
    pub staying: [u32; POOLS.len()],
    /// Workers that are up, by pool.
    pub up: [u32; POOLS.len()],
    /// Workers that are desired, by pool.
    pub desired: [u32; POOLS.len()],
}

/// All observations.
#[derive(Debug, Default)]
pub struct WatchLog {
    /// Machines by name.
    pub machines: BTreeMap<String, Machine>,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// The times of LOADs, ms, by variant and pool.
    pub loads_ms: BTreeMap<(String, usize), Vec<f64>>,
    /// Since when each variant is being loaded on a worker.
    loading: BTreeMap<(String, String), u64>,
}

/// Watches a service until `stop`. What one look cannot read, the next one reads.
pub fn watch(service: &Service, stop: &AtomicBool) -> Result<WatchLog> {
    let mut watched = WatchLog::default();
    let folder = service.data.join("workers");
    let mut connection = service.server.connect()?;
    while !stop.load(Ordering::Relaxed) {
        watched.look_at_machines(&folder)?;
        if watched.look_at_workers(&mut connection).is_err() {
            connection = service.server.connect()?;
        }
        shell::pause(LOOK);
    }
    Ok(watched)
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
}

// === impl WatchLog ===

impl WatchLog {
    /// Hours of the machines of a pool between two times.
    pub fn hours(&self, pool: usize, (from_ms, until_ms): (u64, u64)) -> f64 {
        let of = self.machines.values().filter(|it| it.pool == pool);
        let ms = of.map(|it| {
            let end = it.gone_ms.unwrap_or(u64::MAX).min(until_ms);
            end.saturating_sub(it.since_ms.max(from_ms))
        });
        ms.sum::<u64>() as f64 / 3.6e6
    }

    /// The times from the order of a machine until its worker was up, s, for machines of a pool that were ordered since
    /// `from_ms`.
    pub fn starts_s(&self, pool: usize, from_ms: u64) -> Vec<f64> {
        let of = self.machines.values();
        let of = of.filter(|it| it.pool == pool && it.since_ms >= from_ms);
        let each = of.filter_map(|it| Some(it.up_ms?.saturating_sub(it.since_ms) as f64 / 1e3));
        each.collect()
    }

    fn look_at_machines(&mut self, folder: &Path) -> Result<()> {
        let mut there = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            if path.extension().is_some_and(|it| it == "json") {
                // A record that is being written or has just been removed is read at the next look.
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                if let Ok(record) = serde_json::from_str::<Value>(&text) {
                    there.extend(self.note(&record));
                }
            }
        }
        let now = now_ms();
        for (name, machine) in &mut self.machines {
            let lives = machine.process.is_none_or(lives) && there.contains(name);
            if !lives && machine.gone_ms.is_none() {
                machine.gone_ms = Some(now);
            }
        }
        Ok(())
    }

    /// Takes over a machine's record and returns the machine's name.
    fn note(&mut self, record: &Value) -> Option<String> {
        let name = record["id"].as_str()?;
        let pool = POOLS.iter().position(|of| record["pool"] == of.name)?;
        let machine = self.machines.entry(name.to_owned()).or_default();
        machine.pool = pool;
        machine.since_ms = record["since_ms"].as_u64()?;
        machine.process = record["process"]["pid"].as_u64().or(machine.process);
        machine.ends = !record["end"].is_null();
        Some(name.to_owned())
    }

    fn look_at_workers(&mut self, connection: &mut Connection) -> Result<()> {
        let workers = connection.get("/v1/workers")?.json()?;
        let instances = connection.get("/v1/instances")?.json()?;
        let scaling = connection.get("/v1/scaling")?.json()?;
        let now = now_ms();
        let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
        for worker in list(&workers, "workers") {
            let name = worker["name"].as_str().unwrap_or_default();
            if let Some(machine) = self.machine_of(name) {
                machine.up_ms.get_or_insert(now);
            }
        }
        for instance in list(&instances, "instances") {
            self.note_instance(&instance);
        }
        let rows = list(&scaling, "pools");
        let count = |pool: usize, field: &str| {
            let row = rows
                .iter()
                .find(|row| row["device_type"] == POOLS[pool].name);
            let count = row.and_then(|row| row[field].as_u64()).unwrap_or(0);
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let staying = |pool: usize| {
            let of = self.machines.values();
            let of = of.filter(|it| it.pool == pool && it.gone_ms.is_none() && !it.ends);
            of.count() as u32
        };
        self.samples.push(Sample {
            at_ms: now,
            staying: std::array::from_fn(staying),
            up: std::array::from_fn(|pool| count(pool, "up")),
            desired: std::array::from_fn(|pool| count(pool, "desired")),
        });
        Ok(())
    }

    /// The machine of a worker: the worker's name begins with the machine's name.
    fn machine_of(&mut self, worker: &str) -> Option<&mut Machine> {
        let mut all = self.machines.iter_mut();
        let found = all.find(|(name, _)| {
            let rest = worker.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        found.map(|(_, machine)| machine)
    }

    /// A LOAD takes the time from `loading` to `active`.
    fn note_instance(&mut self, instance: &Value) {
        let text = |field: &str| instance[field].as_str().unwrap_or_default().to_owned();
        let (worker, variant) = (text("worker"), text("variant"));
        let Some(since_ms) = instance["since_ms"].as_u64() else {
            return;
        };
        let key = (worker.clone(), variant.clone());
        match instance["state"].as_str() {
            Some("loading") => {
                self.loading.insert(key, since_ms);
            }
            Some("active") => {
                let begun = self.loading.remove(&key);
                let pool = self.machine_of(&worker).map(|machine| machine.pool);
                if let (Some(begun), Some(pool)) = (begun, pool) {
                    let took = since_ms.saturating_sub(begun) as f64;
                    self.loads_ms.entry((variant, pool)).or_default().push(took);
                }
            }
            _ => {}
        }
    }
}

/// Whether a process has not ended; a zombie counts as ended.
fn lives(process: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(pool: usize, since_ms: u64, up_ms: Option<u64>, gone_ms: Option<u64>) -> Machine {
        Machine {
            pool,
            since_ms,
            up_ms,
            gone_ms,
            ..Machine::default()
        }
    }

    #[test]
    fn hours_are_those_between_the_two_times_from_the_order_to_the_end() {
        let mut watched = WatchLog::default();
        for (name, machine) in [
            ("a", machine(0, 0, Some(1000), None)),
            ("b", machine(0, 1_800_000, Some(1_802_500), Some(3_600_000))),
            ("c", machine(0, 0, Some(2000), Some(900_000))),
            ("d", machine(1, 4_000_000, None, None)),
        ] {
            watched.machines.insert(name.to_owned(), machine);
        }
        assert_eq!(watched.hours(0, (900_000, 4_500_000)), 1.5);
        assert_eq!(watched.hours(1, (900_000, 4_500_000)), 500_000.0 / 3.6e6);
        assert_eq!(watched.starts_s(0, 1_000_000), [2.5]);
        assert!(watched.starts_s(1, 0).is_empty());
    }

    #[test]
    fn a_load_takes_from_loading_to_active() {
        let mut watched = WatchLog::default();
        let record = serde_json::json!({
            "id": "small-1-ab", "pool": "small", "since_ms": 5, "process": {"pid": 1}, "end": null
        });
        assert_eq!(watched.note(&record).as_deref(), Some("small-1-ab"));
        for (state, since_ms) in [("loading", 1000), ("loading", 1000), ("active", 1380)] {
            watched.note_instance(&serde_json::json!({
                "worker": "small-1-ab-emulated-0", "variant": "v", "state": state,
                "since_ms": since_ms
            }));
        }
        let took = watched.loads_ms.get(&("v".to_owned(), 0));
        assert_eq!(took.map(Vec::as_slice), Some(&[380.0][..]));
    }

    #[test]
    fn this_process_lives_and_none_without_a_number_does() {
        assert!(lives(std::process::id().into()));
        assert!(!lives(u64::MAX));
    }
}
