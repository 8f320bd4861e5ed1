//! What Kubernetes does by itself.

use std::time::{Duration, Instant};

use sextant_provider_kubernetes::Kind;

use super::{Fake, World};

/// Time after which it notices a write.
const LAG: Duration = Duration::from_millis(20);

/// Time that a pod takes to end when it is asked to.
const HEEDS: Duration = Duration::from_millis(30);

impl World {
    /// Does everything that is due by now.
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.stalled {
            return;
        }
        let workloads = &self.workloads;
        self.pods.retain(|_, pod| {
            let Some(workload) = workloads.get(&pod.workload) else {
                return true;
            };
            let takes = match workload.heeds {
                true => HEEDS,
                false => Duration::from_millis(workload.grace_ms),
            };
            pod.deleted.is_none_or(|at| now < at + takes)
        });
        let due = self.workloads.iter();
        let due: Vec<String> = due
            .filter(|(_, workload)| now >= workload.written + LAG)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let before = self.pods.len();
            match self.workloads[&name].kind {
                Kind::Deployment => self.deployment(&name, now),
                Kind::StatefulSet => self.stateful_set(&name, now),
            }
            if self.pods.len() != before {
                // Its status has changed.
                let workload = self.workloads.get_mut(&name).expect("it was there");
                workload.version += 1;
            }
        }
    }

    fn deployment(&mut self, name: &str, now: Instant) {
        let replicas = self.workloads[name].replicas as usize;
        let owner = format!("{name}-5d8c");
        let mut active: Vec<&mut Fake> = self
            .pods
            .values_mut()
            .filter(|pod| pod.workload == name && pod.owner.1 == owner)
            .filter(|pod| pod.deleted.is_none() && !pod.failed)
            .collect();
        active.sort_by_key(|pod| pod.rank());
        let surplus = active.len().saturating_sub(replicas);
        for pod in active.iter_mut().take(surplus) {
            pod.deleted = Some(now);
        }
        for _ in active.len()..replicas {
            let given = self.next();
            let ready_ms = self.workloads[name].ready_ms;
            let pod = format!("{owner}-{given:05}");
            let fake = Fake::new(pod.clone(), given, name, ("ReplicaSet", &owner));
            self.pods.insert(pod, fake.ready_after(ready_ms));
        }
    }

    /// Names are reused, so a number waits until its last pod is gone.
    fn stateful_set(&mut self, name: &str, now: Instant) {
        let (replicas, ready_ms) = {
            let workload = &self.workloads[name];
            (workload.replicas, workload.ready_ms)
        };
        for pod in self.pods.values_mut().filter(|pod| pod.workload == name) {
            let number = pod.name.rsplit('-').next().and_then(|it| it.parse().ok());
            if number.is_some_and(|it: u32| it >= replicas) && pod.deleted.is_none() {
                pod.deleted = Some(now);
            }
        }
        for number in 0..replicas {
            let pod = format!("{name}-{number}");
            if !self.pods.contains_key(&pod) {
                let given = self.next();
                let fake = Fake::new(pod.clone(), given, name, ("StatefulSet", name));
                self.pods.insert(pod, fake.ready_after(ready_ms));
            }
        }
    }
}
