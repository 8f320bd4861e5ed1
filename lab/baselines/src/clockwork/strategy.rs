//! Batch queues and strategies of one queue (Clockwork, section 5.3).

use sextant_schedule::{Delay, NEVER, Nanos, QueueSpec, RequestQueue};
use sextant_types::index::QueueIx;

/// The sizes that batches may have, 1 first.
#[derive(Debug)]
pub(super) struct Sizes {
    rows: Vec<u32>,
    delay: Delay,
}

/// The next batch of a queue at one size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strategy {
    /// Number of first requests that are no longer in the size's batch queue.
    pub passed: usize,
    /// Number of requests of the batch, after those.
    pub count: usize,
    /// Rows of the batch.
    pub rows: u32,
    /// Its position: priority, then latest start; requests without a deadline last, by arrival.
    pub key: u64,
}

/// Keys from here on belong to requests without a deadline, by arrival.
const BEST_EFFORT: u64 = 1 << 55;

impl Sizes {
    /// The sizes of the options; every size up to 64 if there are none.
    pub fn new(rows: &[u32], delay: Delay) -> Self {
        const MOST: u32 = 64;
        let mut rows = match rows {
            [] => (1..=MOST).collect(),
            _ => rows.to_vec(),
        };
        rows.push(1);
        rows.retain(|rows| *rows > 0);
        rows.sort_unstable();
        rows.dedup();
        Self { rows, delay }
    }

    /// Number of sizes.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The id of the strategy of a queue and a size.
    pub fn id(&self, queue: QueueIx, size: usize) -> u32 {
        queue.get() * self.len() as u32 + size as u32
    }

    /// The queue and the size of a strategy.
    pub fn of(&self, id: u32) -> (QueueIx, usize) {
        let sizes = self.len() as u32;
        (QueueIx::new(id / sizes), (id % sizes) as usize)
    }

    /// Number of sizes, from the first on, that batches with this spec may have.
    pub fn usable(&self, spec: &QueueSpec) -> usize {
        if !spec.batched {
            return 1;
        }
        let most = spec.max_rows;
        self.rows.partition_point(|rows| *rows <= most).max(1)
    }

    /// When a batch of `rows` rows could start on a device that is free at `free_at`.
    #[inline]
    pub fn start(&self, now: Nanos, free_at: Nanos, rows: u32) -> Nanos {
        now.saturating_add(self.delay.before_start(rows))
            .max(free_at)
    }

    /// The strategy of a size on a device that is free at `free_at`; `None` if the batch queue does not hold enough.
    pub fn strategy<T>(
        &self,
        now: Nanos,
        free_at: Nanos,
        requests: &RequestQueue<T>,
        spec: &QueueSpec,
        size: usize,
    ) -> Option<Strategy> {
        let end = |rows| {
            self.start(now, free_at, rows)
                .saturating_add(spec.latency.of(rows))
        };
        let (most, last) = (self.rows[size], size + 1 == self.usable(spec));
        let mut passed = requests.due_before(end(most));
        let mut first = requests.rows_of(passed);
        // Beyond the largest size, a request runs alone, as long as its rows take.
        while last && first > most && requests.deadline(passed) < end(first) {
            passed += 1;
            first = requests.rows_of(passed);
        }
        let (count, rows) = match first {
            0 => return None,
            _ if first > most && !last => return None,
            _ if first > most || !spec.batched => (1, first),
            _ => self.enough(requests, passed, size)?,
        };
        let key = match requests.deadline(passed) {
            NEVER => BEST_EFFORT + requests.arrived(passed).min(BEST_EFFORT - 1),
            deadline => deadline
                .saturating_sub(spec.latency.of(most.max(rows)))
                .min(BEST_EFFORT - 1),
        };
        Some(Strategy {
            passed,
            count,
            rows,
            key: prioritised(spec.priority, key),
        })
    }

    /// The requests of a batch. Requests of one row must fill the size. A request of several rows takes the smallest
    /// size that can hold it, full or not.
    fn enough<T>(
        &self,
        requests: &RequestQueue<T>,
        passed: usize,
        size: usize,
    ) -> Option<(usize, u32)> {
        let (count, rows) = requests.fit(passed, self.rows[size]);
        let smaller = size.checked_sub(1).map_or(0, |at| self.rows[at]);
        let needed = requests.rows_of(passed) > smaller;
        (rows >= self.rows[size] || needed).then_some((count, rows))
    }
}

/// Priority above the rest of the key: 8 bits and 56 bits, a year of nanoseconds.
fn prioritised(priority: u8, key: u64) -> u64 {
    (u64::from(u8::MAX - priority) << 56) | key
}
