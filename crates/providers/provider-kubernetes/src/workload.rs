//! Changes a workload towards its desired state.

use std::time::Duration;

use sextant_provider::{Error, Machine, MachineId};
use tokio::time::{Instant, sleep};

use crate::{
    Kind, Workload,
    api::{Api, WriteOutcome},
    error::refused,
    look::Look,
    pod::LivePod,
};

/// Largest number of attempts of a write that conflicts with others.
const ATTEMPTS: u32 = 16;

/// Time between two attempts, and between two looks at what Kubernetes has done.
const PAUSE: Duration = Duration::from_millis(50);

/// A workload whose replicas are changed.
pub(crate) struct ScaledWorkload {
    api: Api,
    workload: Workload,
    settle: Duration,
}

// === impl ScaledWorkload ===

impl ScaledWorkload {
    pub(crate) fn new(api: Api, workload: Workload, settle_ms: u64) -> Self {
        Self {
            api,
            workload,
            settle: Duration::from_millis(settle_ms),
        }
    }

    /// The machines. Lowers the replicas for pods that an earlier call has marked and left.
    pub(crate) async fn list(&self) -> Result<Vec<Machine>, Error> {
        let look = self.look().await?;
        self.take_off(&look).await?;
        Ok(look.machines())
    }

    /// Waits until pods that were told to end have begun to end, so that more replicas do not keep them.
    pub(crate) async fn grow(&self, count: u32) -> Result<(), Error> {
        if self.look().await?.due() >= count {
            return Ok(());
        }
        self.write(|look| look.due()).await?;
        self.settled(|look| look.told() == 0).await?;
        if self.write(|look| look.due().max(count)).await? {
            self.settled(|look| look.staying() >= count as usize)
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn end(&self, named: &[MachineId]) -> Result<(), Error> {
        match self.workload.kind {
            Kind::Deployment => {
                for pod in self.look().await?.untold(named) {
                    self.api.mark(&pod).await?;
                }
                self.write(|look| look.due()).await?;
            }
            Kind::StatefulSet => {
                self.write(|look| look.without_last(named)).await?;
            }
        }
        self.settled(|look| look.told() == 0).await
    }

    async fn look(&self) -> Result<Look, Error> {
        let replicas = self.api.replicas().await?;
        let pods = self.api.pods(&replicas).await?;
        let seen = pods.into_iter();
        let mut pods: Vec<LivePod> = seen
            .filter_map(|pod| LivePod::read(pod, &self.workload))
            .collect();
        pods.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(Look {
            kind: self.workload.kind,
            replicas,
            pods,
        })
    }

    /// Writes the number of replicas for a look. Returns whether it was a change.
    async fn write(&self, count: impl Fn(&Look) -> u32) -> Result<bool, Error> {
        for _ in 0..ATTEMPTS {
            let look = self.look().await?;
            let count = count(&look);
            if count == look.replicas.count {
                return Ok(false);
            }
            if self.api.write(&look.replicas, count).await? == WriteOutcome::Yes {
                tracing::debug!(
                    workload = self.api.workload,
                    from = look.replicas.count,
                    to = count,
                    "replicas written"
                );
                return Ok(true);
            }
            sleep(PAUSE).await;
        }
        Err(refused(format!(
            "others write {} all the time: leave its replicas to one autoscaler",
            self.api.workload
        )))
    }

    /// Lowers the replicas for pods that were told to end, if that is not done. If somebody else writes in between, the
    /// next look does it.
    async fn take_off(&self, look: &Look) -> Result<(), Error> {
        if look.due() < look.replicas.count {
            self.api.write(&look.replicas, look.due()).await?;
        }
        Ok(())
    }

    /// Waits until Kubernetes has done something, at most for the time in the settings.
    async fn settled(&self, done: impl Fn(&Look) -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + self.settle;
        loop {
            let look = self.look().await?;
            if done(&look) || Instant::now() >= deadline {
                return Ok(());
            }
            self.take_off(&look).await?;
            sleep(PAUSE).await;
        }
    }
}
