//! What a workload should have and what it has, and the resulting number of replicas.

use sextant_provider::{Machine, MachineId};

use crate::{Kind, api::Replicas, pod::LivePod};

/// A workload at one time. The replicas were read first, so the pods may be newer.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) kind: Kind,
    pub(crate) replicas: Replicas,
    /// The pods that have not ended, sorted by id.
    pub(crate) pods: Vec<LivePod>,
}

// === impl Look ===

impl Look {
    pub(crate) fn machines(&self) -> Vec<Machine> {
        let pods = self.pods.iter();
        pods.map(|pod| pod.machine(self.ends(pod))).collect()
    }

    /// Whether a pod ends or was told to end.
    pub(crate) fn ends(&self, pod: &LivePod) -> bool {
        let told = match self.kind {
            Kind::Deployment => pod.marked,
            Kind::StatefulSet => pod.ordinal.is_some_and(|at| at >= self.replicas.count),
        };
        pod.leaves || told
    }

    /// The number of pods that do not end.
    pub(crate) fn staying(&self) -> usize {
        self.pods.iter().filter(|pod| !self.ends(pod)).count()
    }

    /// The number of pods that were told to end and that Kubernetes does not end yet.
    pub(crate) fn told(&self) -> usize {
        let told = |pod: &&LivePod| self.ends(pod) && !pod.leaves;
        self.pods.iter().filter(told).count()
    }

    /// The number of pods that there should be when all pods have ended that were told to.
    ///
    /// While there are more pods than replicas, Kubernetes is about to end the surplus. That many of the marked pods
    /// are already subtracted from the replicas. The other marked pods are not: either nothing was written since they
    /// were marked, or Kubernetes ended other pods first.
    pub(crate) fn due(&self) -> u32 {
        let count = self.replicas.count;
        match self.kind {
            Kind::StatefulSet => count,
            Kind::Deployment => {
                let there = self.pods.iter().filter(|pod| !pod.leaves).count();
                let surplus = there.saturating_sub(count as usize);
                let owed = self.told().saturating_sub(surplus);
                count.saturating_sub(u32::try_from(owed).unwrap_or(u32::MAX))
            }
        }
    }

    /// The pods of a Deployment among the named ones that were not told to end yet.
    pub(crate) fn untold(&self, named: &[MachineId]) -> Vec<String> {
        let pods = self.pods.iter();
        pods.filter(|pod| named.contains(&pod.id) && !self.ends(pod))
            .map(|pod| pod.name.clone())
            .collect()
    }

    /// The number of pods that a StatefulSet should have when the named pods among its last ones have ended.
    pub(crate) fn without_last(&self, named: &[MachineId]) -> u32 {
        let mut count = self.replicas.count;
        while count > 0 {
            let mut pods = self.pods.iter();
            let last = pods.find(|pod| pod.ordinal == Some(count - 1));
            match last {
                Some(pod) if !pod.leaves && named.contains(&pod.id) => count -= 1,
                _ => break,
            }
        }
        count
    }
}
