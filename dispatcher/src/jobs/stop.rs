//! Why the running of a job ended, and what is worth another attempt.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use sextant_rpc::QueryError;
use sextant_types::Code;

/// How often a call is made before its error is believed.
const ATTEMPTS: u32 = 20;

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a job waits while nobody can answer one of its queries: what it has done is lost when it fails.
const LONGEST_OUTAGE: Duration = Duration::from_secs(6 * 3600);

/// Why a run ended before the job did.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The job is cancelled, or another runner has it.
    NotOurs,
    /// It cannot be done.
    Failed { code: Code, message: String },
}

/// Pauses between attempts: twice as long each time.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

/// The attempts to have one query answered.
pub(crate) struct Trial {
    pauses: Pauses,
    /// Attempts whose errors count.
    attempts: u32,
    /// Since when nobody can answer.
    away_since: Option<Instant>,
}

/// Repeats a call of the registry that may be repeated while the registry does not answer or is full.
pub(crate) async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, sextant_registry::Error>
where
    F: Future<Output = Result<T, sextant_registry::Error>>,
{
    let mut pauses = Pauses::new();
    for _ in 1..ATTEMPTS {
        match call().await {
            Err(error) if is_passing(&error) => {
                tracing::debug!(%error, "the registry is asked again");
                pauses.next().await;
            }
            ended => return ended,
        }
    }
    call().await
}

fn is_passing(error: &sextant_registry::Error) -> bool {
    let away = matches!(error, sextant_registry::Error::Database(_));
    away || matches!(error.code(), Code::Unavailable | Code::StorageFull)
}

// === impl Pauses ===

impl Pauses {
    /// Begins with a short one.
    pub(crate) fn new() -> Self {
        Self::up_to(LONGEST_PAUSE)
    }

    fn up_to(longest: Duration) -> Self {
        let next = Duration::from_millis(5).min(longest);
        Self { next, longest }
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        tokio::time::sleep(self.take()).await;
    }

    fn take(&mut self) -> Duration {
        let taken = self.next;
        self.next = (taken * 2).min(self.longest);
        taken
    }
}

// === impl Trial ===

impl Trial {
    /// No attempt so far. Pauses are at most ten times as long as a look at the load.
    pub(crate) fn new(look: Duration) -> Self {
        Self {
            pauses: Pauses::up_to((look * 10).min(LONGEST_PAUSE)),
            attempts: 0,
            away_since: None,
        }
    }

    /// How long to wait for the next attempt after one that ended with an error; `None` where the error is believed.
    pub(crate) fn pause_after(&mut self, error: &QueryError) -> Option<Duration> {
        match (error.code, error.retry_after_ms) {
            // A job has time: it goes on as its budget fills.
            (Code::BudgetExhausted, Some(wait_ms)) => {
                return Some(Duration::from_millis(wait_ms).min(LONGEST_PAUSE));
            }
            // Workers come back, queues empty: that says nothing of the query.
            (Code::Unavailable | Code::Overloaded | Code::Warming, _) => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= LONGEST_OUTAGE {
                    return None;
                }
            }
            (code, _) => {
                self.attempts += 1;
                let is_last = self.attempts >= ATTEMPTS || code == Code::BudgetExhausted;
                if is_last || !code.kind().is_retryable() {
                    return None;
                }
            }
        }
        Some(self.pauses.take())
    }

    /// Whether nobody has been able to answer for a while.
    pub(crate) fn is_waiting(&self) -> bool {
        self.away_since.is_some() && self.pauses.next == self.pauses.longest
    }
}

// === impl Stop ===

impl Stop {
    pub(crate) fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn panicked() -> Self {
        let message = "the job failed unexpectedly; the log has the cause";
        Self::failed(Code::Internal, message)
    }

    pub(crate) fn from_query(error: QueryError) -> Self {
        Self::Failed {
            code: error.code,
            message: error.message,
        }
    }
}

impl From<sextant_registry::Error> for Stop {
    fn from(error: sextant_registry::Error) -> Self {
        match error {
            sextant_registry::Error::Cancelled { .. }
            | sextant_registry::Error::LeaseLost { .. }
            | sextant_registry::Error::NotFound { .. } => Self::NotOurs,
            error => Self::failed(error.code(), error.to_string()),
        }
    }
}

impl From<sextant_objects::Error> for Stop {
    fn from(error: sextant_objects::Error) -> Self {
        Self::failed(error.code(), error.to_string())
    }
}

impl From<sextant_objects::InvalidPath> for Stop {
    fn from(error: sextant_objects::InvalidPath) -> Self {
        Self::failed(Code::InvalidPath, error.to_string())
    }
}

impl From<sextant_records::Error> for Stop {
    fn from(error: sextant_records::Error) -> Self {
        Self::failed(error.code(), error.to_string())
    }
}
