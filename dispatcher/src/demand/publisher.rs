//! Writes the demand into the metadata store while this dispatcher leads.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sextant_fleet::Token;
use sextant_metadata::{Demand, DeviceDemand, Error, MOST_DEMAND_ROWS, MetadataStore, View};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use crate::Dispatcher;

/// Time between two records.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at the workers once a period.
pub(crate) struct Ticks {
    interval: Interval,
    devices: watch::Sender<Vec<DeviceDemand>>,
}

/// Writes a record after each look.
pub(crate) struct Publisher {
    dispatcher: Arc<Dispatcher>,
    metadata: Arc<dyn MetadataStore>,
    token: Token,
    devices: watch::Receiver<Vec<DeviceDemand>>,
    /// When the window began.
    since: Instant,
    /// Whether another leader's record was found in place of its own. It is logged once.
    fenced: bool,
}

// === impl Ticks ===

impl Ticks {
    pub(crate) fn new() -> Self {
        let mut interval = interval_at(Instant::now() + PERIOD, PERIOD);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            interval,
            devices: watch::Sender::default(),
        }
    }

    /// Comes once a period.
    pub(crate) async fn tick(&mut self) {
        self.interval.tick().await;
    }

    /// Has the publisher write a record with the utilisation of these workers.
    pub(crate) fn look(&self, view: &View) {
        self.devices.send_replace(devices(view));
    }

    pub(crate) fn publisher(
        &self,
        dispatcher: Arc<Dispatcher>,
        metadata: Arc<dyn MetadataStore>,
        token: Token,
    ) -> Publisher {
        Publisher {
            dispatcher,
            metadata,
            token,
            devices: self.devices.subscribe(),
            since: Instant::now(),
            fenced: false,
        }
    }
}

/// The utilisation of the workers that may be used, as they report it, by kind of device.
fn devices(view: &View) -> Vec<DeviceDemand> {
    let mut kinds: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for worker in view.workers.values().filter(|it| !it.record.draining) {
        let record = &worker.record;
        let (busy, slots) = kinds.entry(class_of(&record.device)).or_default();
        // A worker may report any value.
        let share = Some(record.utilization).filter(|it| it.is_finite());
        *busy += share.unwrap_or(0.0).clamp(0.0, 1.0) * f64::from(record.cores);
        *slots = slots.saturating_add(record.cores.into());
    }
    let kinds = kinds.into_iter().filter(|(_, (_, slots))| *slots > 0);
    let devices = kinds.map(|(device, (busy, slots))| DeviceDemand {
        device: device.into(),
        idle_share: (1.0 - busy / f64::from(slots)).clamp(0.0, 1.0),
        slots,
    });
    devices.take(MOST_DEMAND_ROWS).collect()
}

/// The name of a device without the number that tells it from other devices of its machine.
pub(crate) fn class_of(device: &str) -> &str {
    device.split_once(':').map_or(device, |(class, _)| class)
}

// === impl Publisher ===

impl Publisher {
    /// Runs as long as there are ticks.
    pub(crate) async fn run(mut self) {
        while self.devices.changed().await.is_ok() {
            let token = *self.token.borrow();
            match token.filter(|_| self.dispatcher.is_leading()) {
                Some(token) => self.write(token).await,
                None => self.begin_again(),
            }
        }
    }

    /// Starts a new window: counts from before this process led are not part of it.
    fn begin_again(&mut self) {
        let counts = &self.dispatcher.counts;
        counts.told(&counts.unreported());
        self.dispatcher.driver.costs().begin_again();
        self.dispatcher.trials.begin_again();
        self.since = Instant::now();
    }

    async fn write(&mut self, token: u64) {
        let now = Instant::now();
        let unreported = self.dispatcher.counts.unreported();
        let window_ms = now.saturating_duration_since(self.since).as_millis();
        let demand = Demand {
            token,
            window_ms: u64::try_from(window_ms).unwrap_or(u64::MAX).max(1),
            applications: unreported.demand(),
            devices: self.devices.borrow_and_update().clone(),
            costs: self.dispatcher.driver.costs().record(),
            agreement: self.dispatcher.agreement_rows(),
            trials: self.dispatcher.trial_rows(),
        };
        match self.metadata.set_demand(demand).await {
            Ok(()) => {
                self.dispatcher.counts.told(&unreported);
                self.since = now;
                self.fenced = false;
            }
            Err(error @ Error::Fenced { .. }) => {
                if !std::mem::replace(&mut self.fenced, true) {
                    tracing::warn!(%error, "what is asked for was not taken");
                }
                self.begin_again();
            }
            // The follower has logged that the store is away. The next window is longer instead.
            Err(error) => tracing::debug!(%error, "what is asked for was not taken"),
        }
    }
}
