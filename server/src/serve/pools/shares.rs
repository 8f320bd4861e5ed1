//! The share of each child process in this machine: cores that no other child may use, and a share of the memory.
//!
//! The processes of all pools with processors are counted as if each pool had its `most` workers. So the share of a
//! process does not change when others come and go, and its measured times stay valid. A pool whose settings name
//! `worker.cores` or `worker.pin` is not restricted to cores; one with GPUs has a GPU for each worker.

use std::collections::BTreeMap;

use sextant_provider::process::Place;
use sextant_types::DeviceTypeName;

use super::inherited;
use sextant_config::{Config, Pool, ProviderKind};

/// Less memory for models than this is no setting, bytes.
const LEAST_MEMORY_BYTES: u64 = 1 << 20;

/// The places of the children of each pool, on these cores.
pub(super) fn places(config: &Config, cores: &[usize]) -> BTreeMap<DeviceTypeName, Vec<Place>> {
    let pools = config.autoscaler.pools.iter();
    let pools = pools.filter(|(_, pool)| pool.provider == ProviderKind::Process);
    let pools: Vec<_> = pools.collect();
    let shared = pools
        .iter()
        .filter(|(name, pool)| shares(config, name, pool));
    let workers = shared.map(|(_, pool)| u64::from(pool.most)).sum::<u64>();
    let share = Share {
        cores,
        each: cores.len() / usize::try_from(workers).unwrap_or(usize::MAX).max(1),
        memory_bytes: config.worker_memory_bytes() / workers.max(1),
    };
    let mut next = 0;
    pools
        .into_iter()
        .map(|(name, pool)| {
            let places = match (inherited::has_gpus(pool), shares(config, name, pool)) {
                (true, _) => gpus(pool),
                (false, true) => {
                    let place = |_| share.place(config, pool, &mut next);
                    (0..pool.most).map(place).collect()
                }
                (false, false) => Vec::new(),
            };
            (name.clone(), places)
        })
        .collect()
}

/// Whether its workers run batches on this machine's cores.
fn shares(config: &Config, name: &DeviceTypeName, pool: &Pool) -> bool {
    let elsewhere = inherited::setting(pool, "worker.devices").is_some_and(|it| it != "cpu");
    !elsewhere && !config.worker.emulated.types.contains_key(name)
}

/// The places of workers with a GPU each.
fn gpus(pool: &Pool) -> Vec<Place> {
    let gpu = |ordinal: u32| Place {
        arguments: set(&format!("worker.devices=cuda:{ordinal}")),
        cores: Vec::new(),
    };
    match pool.gpus.is_empty() {
        true => (0..pool.most).map(gpu).collect(),
        false => pool.gpus.iter().copied().map(gpu).collect(),
    }
}

fn set(pair: &str) -> Vec<String> {
    vec!["--set".to_owned(), pair.to_owned()]
}

/// What is divided.
struct Share<'a> {
    cores: &'a [usize],
    /// Cores for each worker; 0 where there are fewer than workers.
    each: usize,
    /// Memory for the models of each, bytes.
    memory_bytes: u64,
}

// === impl Share ===

impl Share<'_> {
    /// The next worker's; `next` counts the cores that are given away.
    fn place(&self, config: &Config, pool: &Pool, next: &mut usize) -> Place {
        let says = |key| inherited::setting(pool, key).is_some();
        let count = pool.cores.or(config.worker.cores).map(usize::from);
        let count = count.unwrap_or(self.each).clamp(1, self.cores.len().max(1));
        let held = !says("worker.cores") && !says("worker.pin") && config.worker.pin.is_empty();
        let mut place = Place::default();
        if held {
            let around = self.cores.iter().copied().cycle();
            let skipped = *next % self.cores.len().max(1);
            place.cores = around.skip(skipped).take(count).collect();
            *next += count;
        }
        let is_left_to_us =
            pool.total_memory_bytes.is_none() && config.worker.memory_bytes.is_none();
        if is_left_to_us && !says("worker.memory_bytes") {
            let bytes = self.memory_bytes.max(LEAST_MEMORY_BYTES);
            place.arguments = set(&format!("worker.memory_bytes={bytes}"));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools of these names with these numbers of workers and settings.
    fn config(pools: &[(&str, u32, &str)]) -> Config {
        let mut config = Config::default();
        for (name, most, settings) in pools {
            let pool = Pool {
                most: *most,
                settings: settings.split_whitespace().map(str::to_owned).collect(),
                ..Pool::default()
            };
            config.autoscaler.pools.insert(device(name), pool);
        }
        config
    }

    fn device(name: &str) -> DeviceTypeName {
        DeviceTypeName::new(name).expect("a name")
    }

    fn cores(places: &[Place]) -> Vec<Vec<usize>> {
        places.iter().map(|place| place.cores.clone()).collect()
    }

    #[test]
    fn workers_of_all_pools_have_cores_of_their_own() {
        let config = config(&[("a", 2, ""), ("b", 1, "")]);
        let places = places(&config, &[0, 1, 4, 5, 6, 7, 8]);
        assert_eq!(cores(&places[&device("a")]), [[0, 1], [4, 5]]);
        assert_eq!(cores(&places[&device("b")]), [[6, 7]]);
        let third = config.worker_memory_bytes() / 3;
        let memory = format!("worker.memory_bytes={third}");
        for place in places.values().flatten() {
            assert_eq!(place.arguments, ["--set", &memory]);
        }
    }

    #[test]
    fn fewer_cores_than_workers_are_one_each_by_turns() {
        let places = places(&config(&[("a", 3, "")]), &[2, 3]);
        assert_eq!(cores(&places[&device("a")]), [[2], [3], [2]]);
    }

    #[test]
    fn what_a_pool_says_is_not_divided() {
        let mut said = config(&[("a", 2, "worker.cores=3 worker.memory_bytes=2000000")]);
        assert_eq!(
            places(&said, &[0, 1])[&device("a")],
            vec![Place::default(); 2]
        );
        let pool = Pool {
            most: 2,
            cores: Some(3),
            total_memory_bytes: Some(1 << 30),
            ..Pool::default()
        };
        said.autoscaler.pools.insert(device("a"), pool);
        let places = places(&said, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(cores(&places[&device("a")]), [[0, 1, 2], [3, 4, 5]]);
        assert!(places[&device("a")][0].arguments.is_empty(), "{places:?}");
    }

    #[test]
    fn workers_with_gpus_have_one_each_and_emulated_ones_nothing() {
        let mut config = config(&[
            ("h200", 2, "worker.devices=cuda"),
            ("slow", 2, ""),
            ("cpu", 1, ""),
        ]);
        let types = &mut config.worker.emulated.types;
        types.insert(device("slow"), sextant_config::EmulatedType::default());
        let places = places(&config, &[0, 1]);
        let named = Pool {
            gpus: vec![3, 1],
            ..config.autoscaler.pools[&device("h200")].clone()
        };
        let ordinals = gpus(&named).into_iter().map(|it| it.arguments[1].clone());
        let expected = ["worker.devices=cuda:3", "worker.devices=cuda:1"];
        assert_eq!(ordinals.collect::<Vec<_>>(), expected);
        let gpus = places[&device("h200")]
            .iter()
            .map(|it| it.arguments[1].as_str());
        assert_eq!(
            gpus.collect::<Vec<_>>(),
            ["worker.devices=cuda:0", "worker.devices=cuda:1"]
        );
        assert!(places[&device("slow")].is_empty());
        assert_eq!(
            cores(&places[&device("cpu")]),
            [[0, 1]],
            "alone on the cores"
        );
    }
}
