//! The worker's monitor: lease, utilisation, and the condition of each instance.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_health::{Condition, Health, Window};
use sextant_metadata::{
    Command, Error, Instance as InstanceRecord, InstanceState, Lease, Rejection, Transition,
    WorkerRecord,
};
use sextant_rpc::Work;
use sextant_types::{DeviceTypeName, Surroundings, VariantId, time::unix_ms};

use crate::{
    Worker,
    busy::{Amount, BusyMeter},
    instance::Instance,
    process::Watch,
};

/// Keeps the worker's lease and reports the condition of its instances.
pub struct Service {
    worker: Arc<Worker>,
    seen: HashMap<VariantId, InstanceObservation>,
    looked: Instant,
    /// Whether the records that an earlier worker of the same name left in the store are gone.
    begun: bool,
    /// The former device type of the worker's name, if it was another type.
    former_type: Option<DeviceTypeName>,
    /// When the worker started, ms since the Unix epoch.
    since_ms: u64,
    /// Whether the store says that the worker is to leave.
    leaving: bool,
    watch: Watch,
}

/// Why a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process ends.
    Shutdown,
    /// The worker was told to leave.
    Left,
}

/// A leaving worker that has no batch for this long has left.
const QUIET: Duration = Duration::from_millis(300);

/// What is known of an instance since it was loaded.
struct InstanceObservation {
    busy: Arc<BusyMeter>,
    health: Health,
    /// Slots of the device that it kept busy in the last window, as a share of all.
    share: Amount,
    /// The load that was reported last.
    told: f64,
    /// Whether the store has not heard of its condition, or not since it lost what it knew.
    is_untold: bool,
    // Counters at the last look.
    batches: u64,
    late: u64,
    run_nanos: u64,
    expected_nanos: u64,
}

/// Totals of the device's instances in the last window.
struct DeviceTotals {
    share: Amount,
    busy_instances: u32,
}

impl Service {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self {
            watch: Watch::new(&worker.config.process),
            worker,
            seen: HashMap::new(),
            looked: Instant::now(),
            begun: false,
            former_type: None,
            since_ms: unix_ms(),
            leaving: false,
        }
    }

    /// Runs until `shutdown` resolves, or until the worker is told to leave ([`Work::leave`]). Then drains the worker
    /// and unloads everything. Returns which of the two ended it.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> End {
        let mut ticks = tokio::time::interval(self.period());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(shutdown);
        let end = loop {
            tokio::select! {
                () = &mut shutdown => break End::Shutdown,
                () = self.worker.shared.leave.notified() => break End::Left,
                _ = ticks.tick() => self.look().await,
                () = self.worker.shared.news.notified() => self.worker.note_given_up().await,
            }
        };
        // A worker that only its own process reaches announces nothing when that process ends.
        let is_known = end == End::Left || self.worker.config.endpoint.is_some();
        if is_known {
            self.drain().await;
        }
        self.worker.stop().await;
        if is_known {
            self.leave().await;
        }
        end
    }

    /// Tells the others that the worker leaves. Goes on until they send it no more batches.
    async fn drain(&mut self) {
        let drain = self.worker.config.drain;
        self.worker.shared.draining.store(true, Ordering::Relaxed);
        self.heartbeat().await;
        tracing::info!(worker = %self.worker.config.worker, "drains");
        let (begun, mut quiet_since, mut seen) = (Instant::now(), Instant::now(), u64::MAX);
        let (period, mut told) = (self.period(), Instant::now());
        while begun.elapsed() < drain && quiet_since.elapsed() < QUIET {
            tokio::time::sleep(QUIET / 20).await;
            // Without heartbeats the lease would lapse, and the dispatcher would give up the worker's batches.
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

    /// Removes the worker's instances and its lease from the store at once, before the lease lapses.
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
        let instances = self.worker.shared.instances();
        let together = self.measure(&instances);
        let millionths = (together.share.all.min(1.0) * 1e6) as u64;
        let utilization = &self.worker.shared.utilization_millionths;
        utilization.store(millionths, Ordering::Relaxed);
        self.watch.look(&self.worker.config.process);
        let found = instances.iter();
        let reports: Vec<_> = found
            .filter_map(|instance| {
                let command = self.inspect(instance, &together)?;
                Some(self.worker.transition(&instance.variant, command))
            })
            .collect();
        // The instances are not held while the store answers: a held instance does not count as idle.
        drop(instances);
        self.heartbeat().await;
        if reports.is_empty() {
            return;
        }
        // One call for all: the store sees many instances of many workers in every period.
        let taken = self.worker.metadata.transitions(&reports, unix_ms()).await;
        for (taken, report) in taken.into_iter().zip(reports) {
            self.note_taken(taken, report);
        }
    }

    /// A condition that the store has not taken is told again at the next look.
    fn note_taken(&mut self, taken: Result<InstanceRecord, Error>, report: Transition) {
        match taken {
            Err(error) if !is_said(&error, &report.command) => {
                tracing::debug!(%error, "a report was not taken");
                let doubtful = &self.worker.doubtful;
                doubtful.add(report.key.variant, report.application);
            }
            _ if matches!(report.command, Command::Report { .. }) => {}
            _ => {
                if let Some(seen) = self.seen.get_mut(&report.key.variant) {
                    seen.is_untold = false;
                }
            }
        }
    }

    /// What the store has of conditions is not what it was told last.
    fn tell_conditions_again(&mut self) {
        for seen in self.seen.values_mut() {
            seen.is_untold = true;
        }
    }

    /// The share of slots that each instance kept busy since the last look, and their sum. The sum includes instances
    /// that were unloaded since then.
    fn measure(&mut self, instances: &[Arc<Instance>]) -> DeviceTotals {
        for instance in instances {
            let id = &instance.variant.id;
            let known = self.seen.get(id);
            // An instance that was loaded again starts with new counters.
            if known.is_none_or(|seen| !Arc::ptr_eq(&seen.busy, &instance.busy)) {
                self.seen
                    .insert(id.clone(), InstanceObservation::new(instance));
            }
        }
        let now = Instant::now();
        let wall = now.saturating_duration_since(self.looked).as_nanos().max(1);
        self.looked = now;
        let slot_nanos = wall as f64 * f64::from(self.worker.cores.max(1));
        let mut together = DeviceTotals {
            share: Amount::default(),
            busy_instances: 0,
        };
        for seen in self.seen.values_mut() {
            let busy = seen.busy.take(now);
            let meter = &self.worker.shared.busy_slot_nanos;
            meter.fetch_add(busy.all as u64, Ordering::Relaxed);
            seen.share = busy * slot_nanos.recip();
            together.share += seen.share;
            together.busy_instances += u32::from(seen.share.online > 0.0);
        }
        let loaded: BTreeSet<&VariantId> = instances.iter().map(|it| &it.variant.id).collect();
        self.seen.retain(|variant, _| loaded.contains(variant));
        together
    }

    /// Removes what the store has recorded under the worker's name. A worker that was killed and started again within
    /// its lease has nothing loaded.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.begun {
            return Ok(());
        }
        let config = &self.worker.config;
        let metadata = &self.worker.metadata;
        let known = metadata.workers(unix_ms()).await?;
        let before = known.into_iter().find(|known| known.id == config.worker);
        let before = before.and_then(|before| before.record.device_type);
        let now = config.device_type.as_ref().map(|now| &now.name);
        self.former_type = before
            .map(|before| before.name.clone())
            .filter(|before| now.is_some_and(|now| now != before));
        metadata.remove_worker(&config.worker).await?;
        self.begun = true;
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
            device_type: config.device_type.clone(),
            former_type: self.former_type.clone(),
            since_ms: self.since_ms,
            endpoint: config.endpoint.clone(),
            device: Arc::clone(&config.device),
            engines: info.engines,
            draining: self.worker.is_draining(),
            cores: info.cores,
            memory_bytes: info.pages.bytes(),
            memory_used_bytes: info.pages.used_bytes(),
            utilization: info.utilization,
            surroundings: Some(self.surroundings()),
        };
        let lease = self.worker.config.lease_ms;
        let store = &self.worker.metadata;
        match store
            .heartbeat(&info.worker, record, lease, unix_ms())
            .await
        {
            Ok(lease) => {
                self.mark_again(lease).await;
                match lease.fresh {
                    true => {
                        self.worker.announce().await;
                        self.tell_conditions_again();
                    }
                    false => self.worker.correct_records().await,
                }
            }
            Err(error) => {
                tracing::warn!(worker = %info.worker, %error, "the heartbeat was not taken");
                self.worker.doubt_loaded();
                self.tell_conditions_again();
            }
        }
    }

    /// The surroundings of the engines, as measured so far.
    fn surroundings(&self) -> Surroundings {
        let config = &self.worker.config;
        let is_processor = self.worker.is_processor();
        let cores = match is_processor {
            true => f64::from(self.worker.cores.max(1)),
            false => std::thread::available_parallelism().map_or(1.0, |all| all.get() as f64),
        };
        let meter = &config.process;
        self.watch.surroundings(meter, cores, is_processor)
    }

    /// Marks the worker as leaving again if it was marked before its lease lapsed.
    async fn mark_again(&mut self, lease: Lease) {
        if !self.leaving || lease.leaving {
            self.leaving = lease.leaving;
            return;
        }
        let worker = &self.worker.config.worker;
        if let Err(error) = self.worker.metadata.mark_leaving(worker).await {
            tracing::warn!(%worker, %error, "that the worker is to leave was not noted again");
        }
    }

    /// The command to report for an instance, if there is one.
    fn inspect(&mut self, instance: &Instance, together: &DeviceTotals) -> Option<Command> {
        let seen = self.seen.get_mut(&instance.variant.id)?;
        let window = seen.window(instance, together);
        let limits = &self.worker.config.thresholds;
        let change = seen.health.observe(window, limits);
        if change == Some(Condition::Interfered) {
            let times = window.slow_down;
            let variant = &instance.variant.id;
            tracing::info!(
                %variant,
                "is interfered: its runs take {times:.1} times what was measured"
            );
        }
        seen.is_untold |= change.is_some();
        if seen.is_untold {
            return Some(command_of(seen.health.condition()));
        }
        let news = window.batches > 0 || window.load != seen.told;
        seen.told = window.load;
        news.then_some(Command::Report { load: window.load })
    }
}

/// What tells the store of a condition.
fn command_of(condition: Condition) -> Command {
    match condition {
        Condition::Healthy => Command::Recover,
        Condition::Overloaded => Command::Overload,
        Condition::Interfered => Command::Interfere,
    }
}

/// Whether a command was refused because the record says so already.
fn is_said(error: &Error, command: &Command) -> bool {
    let Error::Rejected(Rejection::State { state, .. }) = error else {
        return false;
    };
    matches!(
        (command, state),
        (Command::Recover, InstanceState::Active)
            | (Command::Overload, InstanceState::Overloaded)
            | (Command::Interfere, InstanceState::Interfered)
    )
}

impl InstanceObservation {
    fn new(instance: &Instance) -> Self {
        Self {
            busy: Arc::clone(&instance.busy),
            health: Health::default(),
            share: Amount::default(),
            told: 0.0,
            is_untold: false,
            batches: 0,
            late: 0,
            run_nanos: 0,
            expected_nanos: 0,
        }
    }

    fn window(&mut self, instance: &Instance, together: &DeviceTotals) -> Window {
        let read = |counter: &AtomicU64, last: &mut u64| {
            let now = counter.load(Ordering::Relaxed);
            now.saturating_sub(std::mem::replace(last, now))
        };
        let batches = read(&instance.batches, &mut self.batches);
        let late = read(&instance.late, &mut self.late);
        let run = read(&instance.run_nanos, &mut self.run_nanos);
        let expected = read(&instance.expected_nanos, &mut self.expected_nanos);
        Window {
            load: self.share.online.clamp(0.0, 1.0),
            device_load: together.share.online.clamp(0.0, 1.0),
            busy_instances: together.busy_instances,
            late,
            slow_down: run as f64 / expected.max(1) as f64,
            batches,
            run_ms: run as f64 / 1e6,
        }
    }
}
