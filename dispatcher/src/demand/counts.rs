//! Rows of counters that only grow, and how much of each has been reported.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sextant_metadata::{ApplicationDemand, MOST_DEMAND_ROWS, StepDemand};
use sextant_rpc::ForStep;
use sextant_types::{
    ApplicationId, Code, StepOf, TargetClass, VariantId, WholeAccuracy,
    index::{ApplicationIx, VariantIx},
};

/// The most rows for queries that were queued. The other rows are reserved for queries that were not queued, and for
/// those that do not fit among these.
const MOST_QUEUED_ROWS: usize = MOST_DEMAND_ROWS / 4 * 3;

/// Runs of steps are counted in millionths, because a step may be asked for each of thousands of rows.
const RUN_PARTS: f64 = 1e6;

/// A row in which nothing was counted in this many windows is given up.
const IDLE_WINDOWS: u32 = 10;

/// How a query ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryOutcome {
    /// In time.
    Answered,
    /// Too late.
    Late,
    /// In time, from the cache: no device ran.
    Kept,
    /// Refused or failed.
    Refused(Code),
    /// Nobody waits for its answer any longer.
    GivenUp,
}

/// Rows of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueryRows {
    pub(crate) rows: u32,
    /// How many rows of a measured size one of these rows is worth.
    pub(crate) worth: f64,
    /// How many runs of a step of a pipeline the query is; 0 if it belongs to no step.
    pub(crate) runs: f64,
}

/// What has ended since the dispatcher's start.
#[derive(Default)]
pub(crate) struct Counts {
    rows: ArcSwap<Rows>,
    /// Held while the rows are replaced. It has the counts of the rows that were given up.
    gone: Mutex<BTreeMap<ApplicationId, Totals>>,
    /// Queries for which there was no row.
    uncounted: AtomicU64,
}

#[derive(Default, Clone)]
struct Rows {
    by_key: HashMap<Key, Arc<Row>>,
    /// How many of the rows name a variant.
    queued: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    application: ApplicationIx,
    class: TargetClass,
    variant: Option<VariantIx>,
    step: Option<Arc<StepOf>>,
}

/// Counts queries of an application with similar targets that went to one variant, or to none.
pub(crate) struct Row {
    application: ApplicationId,
    class: TargetClass,
    variant: Option<VariantId>,
    step: Option<Arc<StepOf>>,
    counted: Tally,
    /// How much of it was reported.
    told: Tally,
    /// Windows in a row in which nothing was counted.
    idle: AtomicU32,
    /// The strictest and the loosest latency target since the last report.
    latency: Span,
    /// The same for the whole pipelines that the step belongs to.
    whole: Span,
    /// The highest accuracy that was demanded of these pipelines since the last report.
    accuracy: Mutex<Option<WholeAccuracy>>,
}

/// The least and the greatest of the values that were added.
struct Span {
    least: AtomicU64,
    most: AtomicU64,
}

struct Tally {
    input_rows: AtomicU64,
    /// In thousandths of a row.
    sized_rows: AtomicU64,
    /// In millionths of a run.
    runs: AtomicU64,
    answered: AtomicU64,
    late: AtomicU64,
    kept: AtomicU64,
    given_up: AtomicU64,
    queueing_us: AtomicU64,
    /// By code, in the order of [`Code::ALL`].
    refused: [AtomicU64; Code::ALL.len()],
}

/// A part of the counts of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Rows of the inputs of those queries that need a device.
    pub(crate) input_rows: u64,
    /// The same in thousandths of rows of a measured size.
    pub(crate) sized_rows: u64,
    /// Runs of a step, in millionths.
    pub(crate) runs: u64,
    /// Answered in time, including those that needed no device.
    pub(crate) answered: u64,
    pub(crate) late: u64,
    /// The answered queries that needed no device.
    pub(crate) kept: u64,
    pub(crate) given_up: u64,
    pub(crate) queueing_us: u64,
    pub(crate) refused: BTreeMap<Code, u64>,
}

/// Counts that were not reported yet. If reporting fails, they are reported the next time, with what is counted until
/// then.
pub(crate) struct ReportBacklog(Vec<(Arc<Row>, Totals)>);

// === impl Counts ===

impl Counts {
    /// Counts a query with these rows that has waited this long, with its latency target in ms. Each name is given with
    /// the number that stands for it.
    pub(crate) fn add(
        &self,
        (application, application_id): (ApplicationIx, &ApplicationId),
        (class, step): (TargetClass, Option<&ForStep>),
        variant: Option<(VariantIx, &VariantId)>,
        query: (QueryOutcome, QueryRows, Duration),
        latency_ms: Option<f64>,
    ) {
        let key = Key {
            application,
            class,
            variant: variant.map(|(ordinal, _)| ordinal),
            step: step.map(|step| Arc::clone(&step.of)),
        };
        let add = |row: &Row| {
            row.counted.add(query);
            if let Some(ms) = latency_ms {
                row.latency.add(ms);
            }
            if let Some(ms) = step.and_then(|step| step.whole_ms) {
                row.whole.add(ms);
            }
            if let Some(of) = step.and_then(|step| step.accuracy.as_ref()) {
                row.add_accuracy(of);
            }
        };
        if let Some(row) = self.rows.load().by_key.get(&key) {
            return add(row);
        }
        let unqueued = Key {
            variant: None,
            ..key.clone()
        };
        let id = variant.map(|(_, id)| id);
        let row = self.insert(&key, application_id, id);
        let row = row.or_else(|| self.insert(&unqueued, application_id, None));
        match row {
            Some(row) => add(&row),
            None => drop(self.uncounted.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The row of a key. Makes a new one if there is room.
    fn insert(
        &self,
        key: &Key,
        application: &ApplicationId,
        variant: Option<&VariantId>,
    ) -> Option<Arc<Row>> {
        let found = |rows: &Rows| rows.by_key.get(key).cloned();
        let rows = self.rows.load();
        if let Some(row) = found(&rows) {
            return Some(row);
        }
        // Checked without the lock, so that names that clients make up do not delay other queries.
        if !rows.has_room(key) {
            return None;
        }
        let _writing = self.gone.lock();
        let mut rows = Rows::clone(&self.rows.load());
        if let Some(row) = found(&rows) {
            return Some(row);
        }
        if !rows.has_room(key) {
            return None;
        }
        let row = Arc::new(Row {
            application: application.clone(),
            class: key.class,
            variant: variant.cloned(),
            step: key.step.clone(),
            counted: Tally::default(),
            told: Tally::default(),
            idle: AtomicU32::new(0),
            latency: Span::default(),
            whole: Span::default(),
            accuracy: Mutex::default(),
        });
        rows.queued += usize::from(key.variant.is_some());
        rows.by_key.insert(key.clone(), Arc::clone(&row));
        self.rows.store(Arc::new(rows));
        Some(row)
    }

    /// What has been counted and not reported.
    pub(crate) fn unreported(&self) -> ReportBacklog {
        let rows = self.rows.load();
        let rows = rows.by_key.values();
        ReportBacklog(
            rows.map(|row| (Arc::clone(row), row.unreported()))
                .collect(),
        )
    }

    /// Marks these counts as reported. Gives up rows in which nothing is counted any longer.
    pub(crate) fn told(&self, unreported: &ReportBacklog) {
        for (row, totals) in &unreported.0 {
            row.told.add_all(totals);
            row.latency.clear();
            row.whole.clear();
            *row.accuracy.lock() = None;
            match totals.is_zero() {
                true => drop(row.idle.fetch_add(1, Ordering::Relaxed)),
                false => row.idle.store(0, Ordering::Relaxed),
            }
        }
        self.give_up_idle();
    }

    fn give_up_idle(&self) {
        let is_idle = |row: &Row| row.idle.load(Ordering::Relaxed) >= IDLE_WINDOWS;
        if !self.rows.load().by_key.values().any(|row| is_idle(row)) {
            return;
        }
        let mut gone = self.gone.lock();
        let mut rows = Rows::clone(&self.rows.load());
        let idle: Vec<_> = rows.by_key.extract_if(|_, row| is_idle(row)).collect();
        rows.queued = rows.by_key.keys().filter(|it| it.variant.is_some()).count();
        self.rows.store(Arc::new(rows));
        for (_, row) in idle {
            let totals = gone.entry(row.application.clone()).or_default();
            totals.add(&row.counted.read());
        }
    }

    /// Forgets the counts of applications that no longer exist.
    pub(crate) fn forget_deleted(&self, exists: impl Fn(&ApplicationId) -> bool) {
        let mut gone = self.gone.lock();
        gone.retain(|application, _| exists(application));
        let rows = self.rows.load();
        if rows.by_key.values().all(|row| exists(&row.application)) {
            return;
        }
        let mut rows = Rows::clone(&rows);
        rows.by_key.retain(|_, row| exists(&row.application));
        rows.queued = rows.by_key.keys().filter(|it| it.variant.is_some()).count();
        self.rows.store(Arc::new(rows));
    }

    /// What has ended since the start, by application.
    pub(crate) fn totals(&self) -> BTreeMap<ApplicationId, Totals> {
        let gone = self.gone.lock();
        let mut totals = gone.clone();
        for row in self.rows.load().by_key.values() {
            let of = totals.entry(row.application.clone()).or_default();
            of.add(&row.counted.read());
        }
        totals
    }

    /// Queries that were not counted, because there were too many combinations.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }
}

impl Rows {
    fn has_room(&self, key: &Key) -> bool {
        let most = MOST_DEMAND_ROWS - MOST_QUEUED_ROWS;
        match key.variant {
            Some(_) => self.queued < MOST_QUEUED_ROWS,
            None => self.by_key.len() - self.queued < most,
        }
    }
}

impl Row {
    fn unreported(&self) -> Totals {
        self.counted.read().since(&self.told.read())
    }

    /// Keeps the highest accuracy that is demanded, and the latest measurement.
    fn add_accuracy(&self, of: &WholeAccuracy) {
        let mut kept = self.accuracy.lock();
        match kept.as_mut() {
            Some(kept) if (kept.measured, &kept.answered) == (of.measured, &of.answered) => {
                kept.least = kept.least.max(of.least);
            }
            _ => *kept = Some(of.clone()),
        }
    }
}

// === impl ReportBacklog ===

impl ReportBacklog {
    /// The demand in the form that the store takes, sorted.
    pub(crate) fn demand(&self) -> Vec<ApplicationDemand> {
        let news = self.0.iter().filter(|(_, totals)| !totals.is_zero());
        let rows = news.map(|(row, totals)| ApplicationDemand {
            application: row.application.clone(),
            class: row.class,
            variant: row.variant.clone(),
            offered: totals.offered(),
            input_rows: totals.input_rows,
            sized_rows: totals.sized_rows as f64 / 1e3,
            latency_ms: row.latency.read(),
            answered: totals.answered,
            late: totals.late,
            kept: totals.kept,
            refused: totals.refused.clone(),
            queueing_ms: totals.queueing_us / 1000,
            step: row.step.as_ref().map(|of| StepDemand {
                of: StepOf::clone(of),
                runs: totals.runs as f64 / RUN_PARTS,
                whole_ms: row.whole.read(),
                accuracy: row.accuracy.lock().clone(),
            }),
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| {
            let key = |row: &ApplicationDemand| (row.application.clone(), row.class);
            let step = |row: &ApplicationDemand| row.step.as_ref().map(|step| step.of.clone());
            (key(a), &a.variant, step(a)).cmp(&(key(b), &b.variant, step(b)))
        });
        rows
    }
}

// === impl Span ===

impl Span {
    fn add(&self, ms: f64) {
        // The bits of numbers that are not negative have the same order as the numbers.
        let bits = ms.max(0.0).to_bits();
        self.least.fetch_min(bits, Ordering::Relaxed);
        self.most.fetch_max(bits, Ordering::Relaxed);
    }

    fn read(&self) -> Option<(f64, f64)> {
        let least = self.least.load(Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed);
        (least <= most).then(|| (f64::from_bits(least), f64::from_bits(most)))
    }

    fn clear(&self) {
        self.least.store(u64::MAX, Ordering::Relaxed);
        self.most.store(0, Ordering::Relaxed);
    }
}

impl Default for Span {
    fn default() -> Self {
        Self {
            least: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
        }
    }
}

// === impl Tally ===

impl Tally {
    fn add(&self, (ended, asked, waited): (QueryOutcome, QueryRows, Duration)) {
        match ended {
            QueryOutcome::Kept => self.kept.fetch_add(1, Ordering::Relaxed),
            _ => {
                let sized = f64::from(asked.rows) * asked.worth * 1e3;
                self.sized_rows.fetch_add(sized as u64, Ordering::Relaxed);
                self.input_rows
                    .fetch_add(asked.rows.into(), Ordering::Relaxed)
            }
        };
        let runs = (asked.runs * RUN_PARTS).round() as u64;
        self.runs.fetch_add(runs, Ordering::Relaxed);
        let counter = match ended {
            QueryOutcome::Answered | QueryOutcome::Kept => &self.answered,
            QueryOutcome::Late => &self.late,
            QueryOutcome::GivenUp => &self.given_up,
            QueryOutcome::Refused(code) => &self.refused[code as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.queueing_us.fetch_add(us, Ordering::Relaxed);
    }

    fn add_all(&self, totals: &Totals) {
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        add(&self.input_rows, totals.input_rows);
        add(&self.sized_rows, totals.sized_rows);
        add(&self.runs, totals.runs);
        add(&self.answered, totals.answered);
        add(&self.late, totals.late);
        add(&self.kept, totals.kept);
        add(&self.given_up, totals.given_up);
        add(&self.queueing_us, totals.queueing_us);
        for (code, count) in &totals.refused {
            add(&self.refused[*code as usize], *count);
        }
    }

    fn read(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = Code::ALL.iter().zip(&self.refused);
        Totals {
            input_rows: read(&self.input_rows),
            sized_rows: read(&self.sized_rows),
            runs: read(&self.runs),
            answered: read(&self.answered),
            late: read(&self.late),
            kept: read(&self.kept),
            given_up: read(&self.given_up),
            queueing_us: read(&self.queueing_us),
            refused: refused
                .map(|(code, count)| (*code, read(count)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            input_rows: AtomicU64::new(0),
            sized_rows: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            late: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            queueing_us: AtomicU64::new(0),
            refused: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

// === impl Totals ===

impl Totals {
    /// All queries, however they ended.
    pub(crate) fn offered(&self) -> u64 {
        let refused: u64 = self.refused.values().sum();
        self.answered + self.late + self.given_up + refused
    }

    fn is_zero(&self) -> bool {
        self.offered() == 0
    }

    /// The counts since `before`.
    fn since(mut self, before: &Self) -> Self {
        self.input_rows = self.input_rows.wrapping_sub(before.input_rows);
        self.sized_rows = self.sized_rows.wrapping_sub(before.sized_rows);
        self.runs = self.runs.wrapping_sub(before.runs);
        self.answered -= before.answered;
        self.late -= before.late;
        self.kept -= before.kept;
        self.given_up -= before.given_up;
        // Wraps as its counter does.
        self.queueing_us = self.queueing_us.wrapping_sub(before.queueing_us);
        for (code, count) in &before.refused {
            if let Some(now) = self.refused.get_mut(code) {
                *now -= count;
            }
        }
        self.refused.retain(|_, count| *count > 0);
        self
    }

    fn add(&mut self, other: &Self) {
        self.input_rows = self.input_rows.wrapping_add(other.input_rows);
        self.sized_rows = self.sized_rows.wrapping_add(other.sized_rows);
        self.runs = self.runs.wrapping_add(other.runs);
        self.answered += other.answered;
        self.late += other.late;
        self.kept += other.kept;
        self.given_up += other.given_up;
        self.queueing_us = self.queueing_us.wrapping_add(other.queueing_us);
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_default() += count;
        }
    }
}
