//! The worker's own watch: lease, utilisation, condition of each instance.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sextant_metadata::{Command, WorkerRecord};
use sextant_policies::health::{Condition, Health, Window};
use sextant_rpc::Work;
use sextant_types::VariantId;

use crate::{Worker, instance::Instance, unix_ms};

/// Keeps the worker's lease and reports the condition of its instances.
pub struct Service {
    worker: Arc<Worker>,
    seen: HashMap<VariantId, Seen>,
    busy_nanos: u64,
    nanos: u64,
    /// Whether what an earlier worker of the name has left in the store is out of sight.
    begun: bool,
}

/// A worker that leaves has been left alone when no batch has come for so long.
const QUIET: Duration = Duration::from_millis(300);

/// Counters at the last look.
#[derive(Default)]
struct Seen {
    health: Health,
    rows: u64,
    batches: u64,
    run_nanos: u64,
    expected_nanos: u64,
}

impl Service {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self {
            worker,
            seen: HashMap::new(),
            busy_nanos: 0,
            nanos: 0,
            begun: false,
        }
    }

    /// Runs until `shutdown`, then drains and unloads what is loaded.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let mut ticks = tokio::time::interval(self.period());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = ticks.tick() => self.look().await,
                () = self.worker.shared.news.notified() => self.worker.note_given_up().await,
            }
        }
        self.drain().await;
        self.worker.stop().await;
        if self.worker.config.endpoint.is_some() {
            self.leave().await;
        }
    }

    /// Tells the others that the worker leaves and goes on until they send it nothing more.
    async fn drain(&mut self) {
        let drain = self.worker.config.drain;
        if drain.is_zero() {
            return;
        }
        self.worker.shared.draining.store(true, Ordering::Relaxed);
        self.heartbeat().await;
        tracing::info!(worker = %self.worker.config.worker, "drains");
        let (begun, mut quiet_since, mut seen) = (Instant::now(), Instant::now(), u64::MAX);
        let (period, mut told) = (self.period(), Instant::now());
        while begun.elapsed() < drain && quiet_since.elapsed() < QUIET {
            tokio::time::sleep(QUIET / 20).await;
            // Whose lease lapses is given up, with the batches that it runs.
            if told.elapsed() >= period {
                self.heartbeat().await;
                told = Instant::now();
            }
            let (accepted, open) = self.worker.shared.batches();
            if open > 0 || accepted != seen {
                (quiet_since, seen) = (Instant::now(), accepted);
            }
        }
    }

    /// Its instances and its lease are gone at once, not only when the lease lapses.
    async fn leave(&self) {
        let worker = &self.worker.config.worker;
        if let Err(error) = self.worker.metadata.remove_worker(worker).await {
            tracing::warn!(%worker, %error, "the worker's leave was not noted");
        }
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.worker.config.period_ms.max(10))
    }

    /// Announces the worker, so that it may load variants before [`Self::run`] is polled.
    pub async fn announce(&mut self) {
        self.heartbeat().await;
    }

    async fn look(&mut self) {
        let seconds = self.measure_utilization();
        self.heartbeat().await;
        let instances = self.worker.shared.instances();
        self.seen
            .retain(|variant, _| instances.iter().any(|i| i.variant.id == *variant));
        let found = instances.iter();
        let reports: Vec<_> = found
            .filter_map(|instance| {
                let command = self.inspect(instance, seconds)?;
                Some(self.worker.transition(&instance.variant, command))
            })
            .collect();
        if reports.is_empty() {
            return;
        }
        // All at once: the store sees many instances of many workers every period.
        for taken in self.worker.metadata.transitions(&reports, unix_ms()).await {
            if let Err(error) = taken {
                tracing::debug!(%error, "a report was not taken");
            }
        }
    }

    fn measure_utilization(&mut self) -> f64 {
        let shared = &self.worker.shared;
        let (busy, nanos) = (shared.busy_nanos.load(Ordering::Relaxed), shared.nanos());
        let wall = nanos.saturating_sub(self.nanos).max(1);
        let capacity = wall as f64 * f64::from(self.worker.cores.max(1));
        let share = (busy.saturating_sub(self.busy_nanos) as f64 / capacity).min(1.0);
        shared
            .utilization_millionths
            .store((share * 1e6) as u64, Ordering::Relaxed);
        (self.busy_nanos, self.nanos) = (busy, nanos);
        wall as f64 / 1e9
    }

    /// A worker that was killed and started again within its lease has nothing loaded, whatever is
    /// recorded under its name.
    async fn begin(&mut self) -> Result<(), sextant_metadata::Error> {
        if !self.begun {
            let worker = &self.worker.config.worker;
            self.worker.metadata.remove_worker(worker).await?;
            self.begun = true;
        }
        Ok(())
    }

    async fn heartbeat(&mut self) {
        if let Err(error) = self.begin().await {
            let worker = &self.worker.config.worker;
            return tracing::warn!(%worker, %error, "the heartbeat was not taken");
        }
        let info = self.worker.info();
        let config = &self.worker.config;
        let record = WorkerRecord {
            endpoint: config.endpoint.clone(),
            device: Arc::clone(&config.device),
            draining: self.worker.is_draining(),
            cores: info.cores,
            memory_bytes: info.pages.bytes(),
            memory_used_bytes: info.pages.used_bytes(),
            utilization: info.utilization,
        };
        let lease = self.worker.config.lease_ms;
        let store = &self.worker.metadata;
        match store
            .heartbeat(&info.worker, record, lease, unix_ms())
            .await
        {
            Ok(lease) if lease.fresh => self.worker.announce().await,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(worker = %info.worker, %error, "the heartbeat was not taken");
            }
        }
    }

    /// What there is to say of an instance.
    fn inspect(&mut self, instance: &Instance, seconds: f64) -> Option<Command> {
        let seen = self.seen.entry(instance.variant.id.clone()).or_default();
        let window = seen.window(instance, seconds);
        let limits = &self.worker.config.thresholds;
        match seen.health.observe(window, limits) {
            None if window.batches == 0 => None,
            None => Some(Command::Report {
                load: window.load.clamp(0.0, 1.0),
            }),
            Some(Condition::Overloaded) => Some(Command::Overload),
            Some(Condition::Interfered) => Some(Command::Interfere),
            Some(Condition::Healthy) => Some(Command::Recover),
        }
    }
}

impl Seen {
    fn window(&mut self, instance: &Instance, seconds: f64) -> Window {
        let read = |counter: &std::sync::atomic::AtomicU64, last: &mut u64| {
            let now = counter.load(Ordering::Relaxed);
            now.saturating_sub(std::mem::replace(last, now))
        };
        let rows = read(&instance.rows, &mut self.rows);
        let batches = read(&instance.batches, &mut self.batches);
        let run = read(&instance.run_nanos, &mut self.run_nanos);
        let expected = read(&instance.expected_nanos, &mut self.expected_nanos);
        let saturation = instance.variant.profile.saturation_rps.max(1e-9);
        Window {
            load: rows as f64 / seconds.max(1e-9) / saturation,
            slow_down: run as f64 / expected.max(1) as f64,
            batches,
        }
    }
}
