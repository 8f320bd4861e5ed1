//! The requests that wait for one variant, in order of their deadlines.

use std::collections::VecDeque;

use super::{NEVER, Nanos, Request};

/// A request and its arrival time.
#[derive(Debug)]
struct Entry<T> {
    request: Request<T>,
    arrived: Nanos,
}

/// A queue in order of (deadline, arrival).
///
/// Requests of one variant mostly have the same target, so they arrive in order and are appended. For a request that
/// arrives out of order, the shorter side of the queue is moved.
#[derive(Debug)]
pub struct RequestQueue<T> {
    entries: VecDeque<Entry<T>>,
    rows: u32,
    /// The rate of the requests for which a batch may wait: if requests of the queue have had deadlines, only those
    /// with one. Requests without a deadline, such as a job's, come when the one before them has been answered, so
    /// waiting for them is useless.
    rate: RateMeter,
    /// When the last of these requests came.
    last: Nanos,
    /// Time between arrival and deadline of the last request that had a deadline, ns.
    slack: Nanos,
}

/// Arrival rate of one queue: an exponential average over windows of 50 ms.
///
/// Symphony samples every 50 ms. This average forgets over 20 windows, so that it shows a burst within a few windows,
/// and a gap does not erase it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateMeter {
    window_from: Nanos,
    rows: u32,
    /// Rows per ns.
    average: f64,
    windows: u32,
}

const WINDOW: Nanos = 50_000_000;
const MEMORY: f64 = 20.0;

// === impl RequestQueue ===

impl<T> Default for RequestQueue<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            rows: 0,
            rate: RateMeter::default(),
            last: 0,
            slack: NEVER,
        }
    }
}

impl<T> RequestQueue<T> {
    /// Adds a request. Returns its position, and `true` if a window of the rate meter has ended.
    pub fn push(&mut self, now: Nanos, request: Request<T>) -> (usize, bool) {
        self.rows += request.rows;
        let deadline = request.deadline;
        if deadline != NEVER {
            self.slack = deadline.saturating_sub(now);
        }
        let is_awaited = deadline != NEVER || self.slack == NEVER;
        if is_awaited {
            self.last = now;
        }
        let awaited = if is_awaited { request.rows } else { 0 };
        let windows = self.rate.add(now, awaited);
        let entry = Entry {
            request,
            arrived: now,
        };
        let in_order = self
            .entries
            .back()
            .is_none_or(|last| last.request.deadline <= deadline);
        if in_order {
            self.entries.push_back(entry);
            return (self.entries.len() - 1, windows);
        }
        let at = self
            .entries
            .partition_point(|entry| entry.request.deadline <= deadline);
        self.entries.insert(at, entry);
        (at, windows)
    }

    /// The first request.
    pub fn first(&self) -> Option<&Request<T>> {
        self.entries.front().map(|entry| &entry.request)
    }

    /// Removes the first request.
    pub fn pop(&mut self) -> Option<Request<T>> {
        let entry = self.entries.pop_front()?;
        self.rows -= entry.request.rows;
        Some(entry.request)
    }

    /// Removes `count` requests after the first `skip`.
    pub fn take(&mut self, skip: usize, count: usize) -> Vec<Request<T>> {
        let end = (skip + count).min(self.entries.len());
        let taken: Vec<_> = self
            .entries
            .drain(skip.min(end)..end)
            .map(|entry| entry.request)
            .collect();
        self.rows -= taken.iter().map(|request| request.rows).sum::<u32>();
        taken
    }

    /// The position of the first request without a deadline, if it came before `arrived_before`. Such requests are
    /// behind all others.
    pub fn patient_before(&self, arrived_before: Nanos) -> Option<usize> {
        let last = self.entries.back()?;
        if last.request.deadline != NEVER {
            return None;
        }
        let at = self.due_before(NEVER);
        (self.arrived(at) < arrived_before).then_some(at)
    }

    /// Moves the request at `from` forward to `to`.
    pub fn bring_forward(&mut self, from: usize, to: usize) {
        if let Some(entry) = self.entries.remove(from) {
            self.entries.insert(to.min(from), entry);
        }
    }

    /// Removes all requests.
    pub fn clear(&mut self) -> Vec<Request<T>> {
        self.take(0, usize::MAX - 1)
    }

    /// The number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows of all requests together.
    #[inline]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Whether every request has one row, so that the numbers of rows and requests are the same.
    #[inline]
    pub fn single_rows(&self) -> bool {
        self.rows as usize == self.entries.len()
    }

    /// Deadline of the request at `at`; [`NEVER`] beyond the end.
    #[inline]
    pub fn deadline(&self, at: usize) -> Nanos {
        self.entries
            .get(at)
            .map_or(NEVER, |entry| entry.request.deadline)
    }

    /// The number of first requests whose deadline is before `deadline`.
    #[inline]
    pub fn due_before(&self, deadline: Nanos) -> usize {
        if self.deadline(0) >= deadline {
            return 0;
        }
        self.entries
            .partition_point(|entry| entry.request.deadline < deadline)
    }

    /// Arrival of the request at `at`; [`NEVER`] beyond the end.
    #[inline]
    pub fn arrived(&self, at: usize) -> Nanos {
        self.entries.get(at).map_or(NEVER, |entry| entry.arrived)
    }

    /// Rows of the request at `at`; 0 beyond the end.
    #[inline]
    pub fn rows_of(&self, at: usize) -> u32 {
        self.entries.get(at).map_or(0, |entry| entry.request.rows)
    }

    /// Rows of the requests from `skip` on.
    pub fn rows_from(&self, skip: usize) -> u32 {
        if self.single_rows() {
            return self.entries.len().saturating_sub(skip) as u32;
        }
        self.rows
            - self
                .entries
                .iter()
                .take(skip)
                .map(|entry| entry.request.rows)
                .sum::<u32>()
    }

    /// How many requests fit into `rows` rows after the first `skip`, and the rows that they have.
    pub fn fit(&self, skip: usize, rows: u32) -> (usize, u32) {
        if self.single_rows() {
            let count = (self.entries.len().saturating_sub(skip)).min(rows as usize);
            return (count, count as u32);
        }
        let mut fitted = (0, 0);
        for entry in self.entries.iter().skip(skip) {
            if fitted.1 + entry.request.rows > rows {
                break;
            }
            fitted = (fitted.0 + 1, fitted.1 + entry.request.rows);
        }
        fitted
    }

    /// The measured rate in rows per ns: of requests with a deadline, if the queue has had any.
    pub fn rate(&self) -> f64 {
        self.rate.average
    }

    /// When the last request came that counts in the rate.
    pub fn last_arrival(&self) -> Nanos {
        self.last
    }

    /// Target of the latest request that had one, ns; [`NEVER`] if none had.
    pub fn slack(&self) -> Nanos {
        self.slack
    }
}

// === impl RateMeter ===

impl RateMeter {
    /// Counts `rows`. Returns `true` if the average has changed.
    #[inline]
    pub fn add(&mut self, now: Nanos, rows: u32) -> bool {
        let elapsed = now.saturating_sub(self.window_from);
        let ended = elapsed >= WINDOW;
        if ended {
            self.end_window(now, elapsed);
        }
        self.rows += rows;
        ended
    }

    /// Rows per ns.
    pub fn per_nano(&self) -> f64 {
        self.average
    }

    #[cold]
    fn end_window(&mut self, now: Nanos, elapsed: Nanos) {
        let rate = f64::from(self.rows) / elapsed as f64;
        let passed = (elapsed as f64 / WINDOW as f64).max(1.0);
        let weight = (1.0 - (-passed / MEMORY).exp()).max(1.0 / f64::from(self.windows + 1));
        if self.windows > 0 {
            let known = if self.windows == 1 { 1.0 } else { weight };
            self.average += known * (rate - self.average);
        }
        self.windows = self.windows.saturating_add(1);
        self.window_from = now;
        self.rows = 0;
    }
}
