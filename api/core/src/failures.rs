//! A line in the log for each query that failed, as long as those are few.
//!
//! A flood of refusals would write a line for each query, gigabytes an hour. So each period has a limited number of
//! lines, and one more line counts the rest by code.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use sextant_types::{ApplicationId, Code, Route};
use tokio::time::Instant;

use crate::trace::{self, Trace};

/// Most lines in a period.
const LINES: u32 = 100;

/// Length of a period.
const WHILE: Duration = Duration::from_secs(10);

/// The lines of the present period, and the failures without a line.
#[derive(Default)]
pub struct Failures(Mutex<LogWindow>);

#[derive(Default)]
struct LogWindow {
    /// When the period began; `None` before the first failure.
    since: Option<Instant>,
    lines: u32,
    counted: BTreeMap<Code, u64>,
}

/// Logs one line for a query that failed: it answers a user's "it failed at 10:03".
pub fn log(route: Option<&Route>, application: Option<&ApplicationId>, code: Code) {
    let trace = trace::current();
    let (request_id, trace_id) = trace
        .as_ref()
        .map(|trace: &Trace| (trace.request_id(), trace.trace_id()))
        .unzip();
    let (mut application, mut model, mut variant) =
        (application.map(ApplicationId::as_str), None, None);
    match route {
        // Also an application that does not exist: its name was the mistake.
        Some(Route::Application(id)) => application = Some(id.as_str()),
        Some(Route::Model(id)) => model = Some(id.as_str()),
        Some(Route::Variant(id)) => variant = Some(id.as_str()),
        None => {}
    }
    let code = code.as_str();
    tracing::info!(
        request_id,
        trace_id,
        application,
        model,
        variant,
        code,
        "query failed"
    );
}

// === impl Failures ===

impl Failures {
    /// Whether a failure gets a line of its own; if not, it is counted.
    pub fn tells(&self, code: Code, now: Instant) -> bool {
        self.sum_up(now);
        let mut told = self.0.lock();
        told.since.get_or_insert(now);
        if told.lines < LINES {
            told.lines += 1;
            return true;
        }
        *told.counted.entry(code).or_default() += 1;
        false
    }

    /// Logs one line for the failures without a line, once the period is over. To be called from time to time.
    pub fn sum_up(&self, now: Instant) {
        let counted = self.take(now);
        if counted.is_empty() {
            return;
        }
        let queries: u64 = counted.values().sum();
        let codes: Vec<String> = counted
            .iter()
            .map(|(code, count)| format!("{code}: {count}"))
            .collect();
        let codes = codes.join(", ");
        tracing::info!(queries, codes, "more queries failed");
    }

    /// The failures without a line of a period that is over.
    fn take(&self, now: Instant) -> BTreeMap<Code, u64> {
        let mut told = self.0.lock();
        let is_over = |since| now.saturating_duration_since(since) >= WHILE;
        match told.since.is_some_and(is_over) {
            true => std::mem::take(&mut *told).counted,
            false => BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_has_few_lines_and_a_sum() {
        let (failures, begin) = (Failures::default(), Instant::now());
        let lines = |now| {
            let told = (0..5000).filter(|_| failures.tells(Code::Overloaded, now));
            told.count()
        };
        assert_eq!(lines(begin), LINES as usize);
        assert_eq!(failures.take(begin + WHILE / 2), BTreeMap::new());
        let later = begin + WHILE;
        assert!(!failures.tells(Code::TargetInfeasible, begin));
        let counted = failures.take(later);
        let wanted = [
            (Code::TargetInfeasible, 1),
            (Code::Overloaded, 5000 - u64::from(LINES)),
        ];
        assert_eq!(counted, wanted.into());
        assert_eq!(lines(later), LINES as usize);
    }
}
