//! Run times of queries that come in several sizes: by rows and by size.
//!
//! The *size* of a query is the number of elements of one of its rows. Texts of 16 tokens and of 400 are queries of one
//! model and differ by a factor of 50. A surface holds a table of run times for each measured size. Between two sizes
//! it is linear, which is exact for times that grow with the size, and slightly too high for times that grow faster
//! (attention). Beyond the largest measured size it is the power of the size that fits the last two, at least 1.
//!
//! Queries in one queue share its run times, so sizes are grouped into *buckets*: ranges within which a full batch
//! takes at most [`BUCKET`] times as long at the end as at the beginning. If a run costs nearly the same whatever its
//! size, as with short texts on a large device, a bucket is wide and many queries share batches. If time follows the
//! size, it is narrow, and little is wasted on padding.

use std::sync::Arc;

use sextant_schedule::{LatencyTable, Nanos};

/// The largest ratio of the time of a batch of a bucket's largest size to that of its smallest size.
pub const BUCKET: f64 = 1.15;

/// Growth of the size from bucket to bucket beyond what was measured.
const BEYOND: f64 = 1.25;

/// The largest power of the size that is accepted.
const POWER_MOST: f64 = 3.0;

/// Run times by rows and size. Clones share the tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Surface {
    /// By size, increasing; never empty.
    sizes: Arc<[(u64, LatencyTable)]>,
    /// The largest size of each bucket, increasing. The last is that of `sizes`.
    buckets: Arc<[u64]>,
    /// Beyond the largest size, time grows with this power of the size.
    power: f64,
}

// === impl Surface ===

impl Surface {
    /// Makes a surface from tables for batches of 1 to `max_rows` rows, by size in elements of a row. A size at which
    /// batches seem faster than at a smaller one gets the smaller one's times. `None` if there are no tables.
    pub fn new(mut tables: Vec<(u64, LatencyTable)>, max_rows: u32) -> Option<Self> {
        tables.sort_by_key(|(size, _)| *size);
        tables.dedup_by_key(|(size, _)| *size);
        let mut sizes: Vec<(u64, LatencyTable)> = Vec::with_capacity(tables.len());
        for (size, table) in tables {
            let table = match sizes.last() {
                Some((_, smaller)) => {
                    LatencyTable::rising(max_rows, |rows| table.of(rows).max(smaller.of(rows)))
                }
                None => LatencyTable::rising(max_rows, |rows| table.of(rows)),
            };
            sizes.push((size, table));
        }
        let (smallest, last) = (sizes.first()?.0, sizes.last()?.0);
        let mut surface = Self {
            power: power(&sizes),
            sizes: sizes.into(),
            buckets: Arc::new([]),
        };
        let mut buckets = vec![smallest];
        while let Some(end) = buckets.last().copied().filter(|end| *end < last) {
            buckets.push(surface.end_of_bucket(end.saturating_add(1), max_rows));
        }
        surface.buckets = buckets.into();
        Some(surface)
    }

    /// Run time of `rows` rows of a size, ns.
    pub fn of(&self, rows: u32, size: u64) -> Nanos {
        let at = self.sizes.partition_point(|(known, _)| *known < size);
        match (self.sizes.get(at), at.checked_sub(1)) {
            (Some((_, table)), None) => table.of(rows),
            (Some((known, table)), Some(_)) if *known == size => table.of(rows),
            (Some((above, longer)), Some(before)) => {
                let (below, shorter) = &self.sizes[before];
                let share = (size - below) as f64 / (above - below) as f64;
                let (short, long) = (shorter.of(rows), longer.of(rows));
                short + (share * long.saturating_sub(short) as f64) as Nanos
            }
            (None, Some(before)) => {
                let (last, table) = &self.sizes[before];
                let times = (size as f64 / (*last).max(1) as f64).powf(self.power);
                // The cast saturates.
                (table.of(rows) as f64 * times) as Nanos
            }
            // There is at least one size.
            (None, None) => Nanos::MAX,
        }
    }

    /// The run times of a size, in the form that schedulers read.
    pub fn table(&self, size: u64) -> LatencyTable {
        LatencyTable::rising(self.measured_rows(), |rows| self.of(rows, size))
    }

    /// The bucket of a size: its smallest and its largest size.
    pub fn bucket(&self, size: u64) -> (u64, u64) {
        let at = self.buckets.partition_point(|end| *end < size);
        if let Some(end) = self.buckets.get(at) {
            let before = at.checked_sub(1).map_or(0, |before| self.buckets[before]);
            return (before.saturating_add(1).min(size), *end);
        }
        let (mut before, mut end) = (self.largest(), self.largest());
        while end < size {
            before = end;
            // The cast saturates.
            end = ((end as f64 * BEYOND) as u64).max(end.saturating_add(1));
        }
        (before.saturating_add(1), end)
    }

    /// Whether a size is larger than all measured ones, so that its run times are estimates.
    pub fn is_beyond(&self, size: u64) -> bool {
        size > self.largest()
    }

    /// The ratio of the device time of a row of `size` to that of a row of `than`, each in the batches that suit it
    /// best.
    pub fn share(&self, size: u64, than: u64) -> f64 {
        let least = |size| {
            let rows = 1..=self.measured_rows();
            let per_row = rows.map(|rows| self.of(rows, size) as f64 / f64::from(rows));
            per_row.fold(f64::INFINITY, f64::min)
        };
        least(size) / least(than)
    }

    fn largest(&self) -> u64 {
        self.sizes.last().map_or(0, |(size, _)| *size)
    }

    fn measured_rows(&self) -> u32 {
        self.sizes
            .first()
            .map_or(1, |(_, table)| table.measured_rows())
    }

    /// The largest size of the bucket that begins with `from`, which was measured or lies between measured sizes.
    fn end_of_bucket(&self, from: u64, max_rows: u32) -> u64 {
        let most = self.of(max_rows, from) as f64 * BUCKET;
        let fits = |size: u64| self.of(max_rows, size) as f64 <= most;
        let (mut fit, mut late) = (from, self.largest());
        if fits(late) {
            return late;
        }
        while late - fit > 1 {
            let middle = fit + (late - fit) / 2;
            match fits(middle) {
                true => fit = middle,
                false => late = middle,
            }
        }
        fit
    }
}

/// The power of the size that fits the last two sizes.
fn power(sizes: &[(u64, LatencyTable)]) -> f64 {
    let [.., (below, shorter), (above, longer)] = sizes else {
        return 1.0;
    };
    let times = longer.of(1) as f64 / shorter.of(1) as f64;
    let power = times.ln() / (*above as f64 / (*below).max(1) as f64).ln();
    // Not a number if both sizes are 0 or 1.
    power.clamp(1.0, POWER_MOST).max(1.0)
}
