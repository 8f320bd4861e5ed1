//! The device types of a fleet, as its workers announce them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use sextant_types::{DeviceType, DeviceTypeName, WorkerId};

use crate::Worker;

/// The types of the workers' devices. If two workers announce different facts under one name, those
/// of the worker that started first count for costs. For scheduling, each worker's own facts count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceTypes {
    types: BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    /// Contradictions between announcements, sorted by when the workers started.
    pub warnings: Vec<HardwareWarning>,
}

/// Announcements that contradict each other. They stop nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HardwareWarning {
    /// Two workers announce one type with different facts.
    Conflict {
        /// The type.
        device_type: DeviceTypeName,
        /// The worker whose announcement is ignored.
        worker: WorkerId,
        /// The worker whose announcement counts.
        other: WorkerId,
        /// The first fact that differs.
        fact: &'static str,
    },
    /// A worker came back with another type.
    Changed {
        /// The worker.
        worker: WorkerId,
        /// The former type.
        from: DeviceTypeName,
        /// The present type.
        to: DeviceTypeName,
    },
}

// === impl DeviceTypes ===

impl DeviceTypes {
    /// The types that these workers announce.
    pub fn of<'a>(workers: impl IntoIterator<Item = &'a Worker>) -> Self {
        let mut workers: Vec<&Worker> = workers.into_iter().collect();
        workers.sort_by_key(|worker| (worker.record.since_ms, &worker.id));
        let mut first: BTreeMap<&DeviceTypeName, (&WorkerId, &Arc<DeviceType>)> = BTreeMap::new();
        let mut warnings = Vec::new();
        for worker in workers {
            let Some(device_type) = &worker.record.device_type else {
                continue;
            };
            let name = &device_type.name;
            let (other, known) = *first.entry(name).or_insert((&worker.id, device_type));
            warnings.extend(
                known
                    .difference(device_type)
                    .map(|fact| HardwareWarning::Conflict {
                        device_type: name.clone(),
                        worker: worker.id.clone(),
                        other: other.clone(),
                        fact,
                    }),
            );
            let former = worker.record.former_type.as_ref();
            warnings.extend(former.map(|former| HardwareWarning::Changed {
                worker: worker.id.clone(),
                from: former.clone(),
                to: name.clone(),
            }));
        }
        let types = first.into_iter();
        Self {
            types: types
                .map(|(name, (_, facts))| (name.clone(), Arc::clone(facts)))
                .collect(),
            warnings,
        }
    }

    /// The facts that count for a type.
    pub fn get(&self, name: &DeviceTypeName) -> Option<&Arc<DeviceType>> {
        self.types.get(name)
    }

    /// All types, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<DeviceType>> {
        self.types.values()
    }
}

// === impl HardwareWarning ===

impl HardwareWarning {
    /// `device_type_conflict`, `device_type_changed`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "device_type_conflict",
            Self::Changed { .. } => "device_type_changed",
        }
    }

    /// The worker that the warning is about.
    pub fn worker(&self) -> &WorkerId {
        match self {
            Self::Conflict { worker, .. } | Self::Changed { worker, .. } => worker,
        }
    }
}

impl fmt::Display for HardwareWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict {
                device_type,
                worker,
                other,
                fact,
            } => write!(
                f,
                "workers `{other}` and `{worker}` announce device type `{device_type}` with \
                 different {fact}: the price of `{other}` counts; give one of them another \
                 `device_type`"
            ),
            Self::Changed { worker, from, to } => write!(
                f,
                "worker `{worker}` had device type `{from}` and came back with `{to}`: give workers \
                 of different hardware different names"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::EngineName;

    use super::*;
    use crate::WorkerRecord;

    fn worker(id: &str, since_ms: u64, price_per_hour_usd: f64) -> Worker {
        let device_type = DeviceType {
            name: DeviceTypeName::new("gpu").expect("valid"),
            engines: vec![EngineName("cuda".to_owned())],
            slots: 1,
            memory_bytes: 1 << 34,
            price_per_hour_usd,
            start_ms: 60_000,
        };
        Worker {
            id: WorkerId::new(id).expect("valid"),
            record: WorkerRecord {
                device_type: Some(Arc::new(device_type)),
                since_ms,
                ..WorkerRecord::default()
            },
            lease_until_ms: 0,
            leaving: false,
        }
    }

    #[test]
    fn the_worker_that_started_first_counts_for_the_price() {
        let workers = [
            worker("b", 1, 2.0),
            worker("a", 2, 3.0),
            worker("c", 3, 2.0),
        ];
        let types = DeviceTypes::of(&workers);
        let name = DeviceTypeName::new("gpu").expect("valid");
        assert_eq!(types.get(&name).map(|it| it.price_per_hour_usd), Some(2.0));
        let [warning] = types.warnings.as_slice() else {
            panic!("{:?}", types.warnings);
        };
        assert_eq!(
            (warning.code(), warning.worker().as_str()),
            ("device_type_conflict", "a")
        );
        let text = warning.to_string();
        assert!(
            text.contains("`b` and `a`") && text.contains("price"),
            "{text}"
        );
    }

    #[test]
    fn a_worker_that_changed_its_type_is_named() {
        let mut changed = worker("a", 1, 1.0);
        changed.record.former_type = Some(DeviceTypeName::processor(8));
        let old = Worker {
            record: WorkerRecord::default(),
            ..worker("b", 0, 1.0)
        };
        let types = DeviceTypes::of(&[changed, old]);
        assert_eq!(
            types.all().count(),
            1,
            "a worker of an earlier version has none"
        );
        assert_eq!(types.warnings[0].code(), "device_type_changed");
    }
}
