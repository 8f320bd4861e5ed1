//! What device time costs, and to whom it is charged.
//!
//! A batch pays for the slots of the device that it occupies, from joining its inputs to cutting its outputs. Its rows
//! share the price equally. The rest of a device's time is idle. Once a second its price is charged to the variants
//! that are loaded on the device, by the memory that each needs, or to nobody if nothing is loaded. Busy and idle time
//! therefore add up to the price of the device. If a batch takes longer than the second in which it ends, the excess is
//! deducted from the idle time of later seconds.
//!
//! One lock is taken for each batch that ends and once a second.

mod book;
mod idle;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use sextant_metadata::{CostRow, Costs as Record, InstanceState, MOST_DEMAND_ROWS, View};
use sextant_picture::DEFAULT_SLOT_HOUR_USD;
use sextant_types::{DeviceType, DeviceTypeName, Variant, VariantId, WorkerId, time::unix_ms};
use tokio::time::Instant;

pub(crate) use self::book::Tally;
use self::{
    book::{Book, Payer},
    idle::{Resident, split},
};
use crate::{Dispatcher, driver::Driver};

/// What a worker's device costs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tariff {
    worker: WorkerId,
    device_type: Option<DeviceTypeName>,
    slots: u16,
    hour_usd: f64,
}

/// A batch that has run.
pub(crate) struct BatchRun<'a> {
    pub(crate) variant: &'a Variant,
    /// Slots that it occupied.
    pub(crate) slots: u16,
    /// How long it ran, microseconds.
    pub(crate) run_us: f64,
    /// Its rows in all, and those of offline jobs.
    pub(crate) rows: (u32, u32),
    /// The queries that it answered in all, and those of offline jobs.
    pub(crate) queries: (u64, u64),
}

/// A worker's device and the variants that are loaded on it, with the bytes that each needs.
pub(crate) struct Occupancy {
    pub(crate) tariff: Arc<Tariff>,
    pub(crate) loaded: Vec<(Arc<Variant>, u64)>,
}

/// What device time has cost.
pub(crate) struct Costs(Mutex<Ledger>);

struct Ledger {
    /// Since the process's start.
    ever: Book,
    /// Since this dispatcher last began to lead.
    led: Book,
    led_since_ms: u64,
    /// The devices that are present.
    devices: BTreeMap<WorkerId, Account>,
}

/// The cost of a device that has not been charged yet.
struct Account {
    until: Instant,
    /// Negative if batches that ended lately took more than the time since the last look.
    open_usd: f64,
}

// === impl Tariff ===

impl Tariff {
    /// The tariff of a worker whose device is of this type, if the type is known.
    pub(crate) fn new(worker: WorkerId, facts: Option<&DeviceType>, cores: u16) -> Self {
        let slots = facts.map_or(cores, |facts| facts.slots).max(1);
        Self {
            worker,
            device_type: facts.map(|facts| facts.name.clone()),
            slots,
            hour_usd: facts.map_or(DEFAULT_SLOT_HOUR_USD * f64::from(slots), |facts| {
                facts.price_per_hour_usd
            }),
        }
    }

    /// Price of a second of this many slots, US dollars.
    pub(crate) fn second_usd(&self, slots: u16) -> f64 {
        self.hour_usd / 3600.0 * self.share(slots)
    }

    /// The share of the device that this many slots are.
    fn share(&self, slots: u16) -> f64 {
        (f64::from(slots.max(1)) / f64::from(self.slots)).min(1.0)
    }
}

// === impl Costs ===

impl Costs {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Ledger {
            ever: Book::new(MOST_DEMAND_ROWS),
            led: Book::new(MOST_DEMAND_ROWS),
            led_since_ms: unix_ms(),
            devices: BTreeMap::new(),
        }))
    }

    /// Charges a batch that has run on a device.
    pub(crate) fn add(&self, tariff: &Tariff, ran: &BatchRun<'_>) {
        let seconds = ran.run_us / 1e6;
        let usd = seconds * tariff.second_usd(ran.slots);
        let (rows, offline) = ran.rows;
        let tally = Tally {
            usd,
            offline_usd: usd * f64::from(offline) / f64::from(rows.max(1)),
            device_seconds: seconds * tariff.share(ran.slots),
            queries: ran.queries.0,
            offline_queries: ran.queries.1,
            ..Tally::default()
        };
        let mut ledger = self.0.lock();
        ledger.count(Payer::new(ran.variant, tariff), &tally);
        if let Some(account) = ledger.devices.get_mut(&tariff.worker) {
            account.open_usd -= usd;
        }
    }

    /// Charges the time until `now` in which the devices that are present were idle.
    pub(crate) fn count_idle_devices(&self, now: Instant, devices: &[Occupancy]) {
        let here: BTreeSet<_> = devices.iter().map(|device| &device.tariff.worker).collect();
        let mut ledger = self.0.lock();
        ledger.devices.retain(|id, _| here.contains(id));
        for device in devices {
            let usd = ledger.take_idle(now, &device.tariff);
            if usd > 0.0 {
                ledger.count_idle(usd, device);
            }
        }
    }

    /// Starts the counts since leading anew: another dispatcher leads, or led meanwhile.
    pub(crate) fn begin_again(&self) {
        let mut ledger = self.0.lock();
        ledger.led = Book::new(MOST_DEMAND_ROWS);
        ledger.led_since_ms = unix_ms();
    }

    /// Forgets the devices: another dispatcher charges their time.
    pub(crate) fn let_go(&self) {
        self.0.lock().devices.clear();
    }

    /// The amounts since this dispatcher began to lead, in the form that the store takes.
    pub(crate) fn record(&self) -> Record {
        let ledger = self.0.lock();
        let rows = ledger.led.rows().map(|(payer, tally)| CostRow {
            application: payer.application.clone(),
            variant: payer.variant.clone(),
            device_type: payer.device_type.clone(),
            usd: tally.usd,
            offline_usd: tally.offline_usd,
            idle_usd: tally.idle_usd,
            device_seconds: tally.device_seconds,
            queries: tally.queries,
            offline_queries: tally.offline_queries,
        });
        Record {
            since_ms: ledger.led_since_ms,
            until_ms: unix_ms(),
            unattributed_usd: ledger.led.unattributed_usd(),
            rows: rows.collect(),
        }
    }

    /// Forgets what was counted since the process's start for variants that no longer exist. What is reported to the
    /// store stays.
    pub(crate) fn forget_deleted(&self, exists: impl Fn(&VariantId) -> bool) {
        self.0.lock().ever.retain(exists);
    }

    /// The amounts since the process's start, by application and variant, and the amount that is charged to nobody, US
    /// dollars. Variants without a row of their own have an empty name.
    pub(crate) fn ever(&self) -> (BTreeMap<(String, String), Tally>, f64) {
        let ledger = self.0.lock();
        let mut sums: BTreeMap<_, Tally> = BTreeMap::new();
        for (payer, tally) in ledger.ever.rows() {
            let variant = payer.variant.as_ref().map(ToString::to_string);
            let names = (payer.application.to_string(), variant.unwrap_or_default());
            sums.entry(names).or_default().add(tally);
        }
        (sums, ledger.ever.unattributed_usd())
    }
}

// === impl Ledger ===

impl Ledger {
    fn count(&mut self, payer: Payer<'_>, tally: &Tally) {
        self.ever.add(payer, tally);
        self.led.add(payer, tally);
    }

    /// The price of the time in which a device was idle since the last look, US dollars.
    fn take_idle(&mut self, now: Instant, tariff: &Tariff) -> f64 {
        let fresh = || Account {
            until: now,
            open_usd: 0.0,
        };
        let account = self.devices.entry(tariff.worker.clone());
        let account = account.or_insert_with(fresh);
        let since = now.saturating_duration_since(account.until);
        account.until = now;
        account.open_usd += since.as_secs_f64() * tariff.second_usd(tariff.slots);
        let idle = account.open_usd.max(0.0);
        account.open_usd -= idle;
        idle
    }

    fn count_idle(&mut self, usd: f64, device: &Occupancy) {
        let kept = device.loaded.iter();
        let kept: Vec<_> = kept
            .map(|(variant, bytes)| Resident {
                by: variant,
                bytes: *bytes,
            })
            .collect();
        if kept.is_empty() {
            self.ever.add_unattributed(usd);
            self.led.add_unattributed(usd);
        }
        for (variant, idle_usd) in split(usd, &kept) {
            let tally = Tally {
                idle_usd,
                ..Tally::default()
            };
            self.count(Payer::new(variant, &device.tariff), &tally);
        }
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Charges the time in which the devices of this dispatcher were idle since the last call.
    pub(crate) fn count_idle_time(&self, view: &View) {
        let costs = self.driver.costs();
        match self.is_leading() {
            true => costs.count_idle_devices(Instant::now(), &occupied(view, &self.driver)),
            false => costs.let_go(),
        }
    }
}

/// The devices of the workers that can be reached, and the variants loaded on them.
fn occupied(view: &View, driver: &Driver) -> Vec<Occupancy> {
    let members = driver.workers().load();
    let mut devices = BTreeMap::new();
    for (at, member) in members.numbered() {
        let here = member.client.is_some() && view.workers.contains_key(&member.id);
        if let Some(tariff) = driver.tariff(at).filter(|_| here) {
            let loaded = Vec::new();
            devices.insert(&member.id, Occupancy { tariff, loaded });
        }
    }
    for instance in view.instances.values().filter(|it| keeps_memory(it.state)) {
        let key = &instance.key;
        if let (Some(device), Some(variant)) = (
            devices.get_mut(&key.worker),
            view.variants.get(&key.variant),
        ) {
            let bytes = variant.profile.peak_memory_bytes;
            device.loaded.push((Arc::clone(variant), bytes));
        }
    }
    devices.into_values().collect()
}

fn keeps_memory(state: InstanceState) -> bool {
    match state {
        InstanceState::Inactive | InstanceState::Failed => false,
        InstanceState::Loading
        | InstanceState::Active
        | InstanceState::Overloaded
        | InstanceState::Interfered
        | InstanceState::Draining => true,
    }
}

#[cfg(test)]
mod tests;
