//! Why a run of a job ended, and which errors are worth another attempt.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use sextant_rpc::QueryError;
use sextant_types::Code;

/// How often a call is made before its error counts as final.
const ATTEMPTS: u32 = 20;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a job waits while nothing can answer one of its queries. If the job fails, what it has done is lost.
const LONGEST_OUTAGE: Duration = Duration::from_secs(6 * 3600);

/// Why a run ended before the job did.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The job is cancelled, or another runner holds it.
    NotOurs,
    /// The job cannot be done.
    Failed { code: Code, message: String },
}

/// Pauses between attempts. Each is twice as long as the one before.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

/// The attempts to have one query answered.
pub(crate) struct Trial {
    pauses: Pauses,
    /// The number of attempts whose errors count.
    attempts: u32,
    /// Since when nothing has been able to answer.
    away_since: Option<Instant>,
}

/// Repeats a call of the registry while the registry does not answer or is full. The call must be repeatable.
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
    /// Starts with a short pause.
    pub(crate) fn new() -> Self {
        Self::up_to(LONGEST_PAUSE)
    }

    fn up_to(longest: Duration) -> Self {
        let next = Duration::from_millis(5).min(longest);
        Self { next, longest }
    }

    /// Waits for the next pause to pass.
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
    /// Starts without attempts. Pauses are at most ten times as long as the time between two looks at the load.
    pub(crate) fn new(look: Duration) -> Self {
        Self {
            pauses: Pauses::up_to((look * 10).min(LONGEST_PAUSE)),
            attempts: 0,
            away_since: None,
        }
    }

    /// How long to wait before the next attempt after one that ended with an error; `None` if the error is final.
    pub(crate) fn pause_after(&mut self, error: &QueryError) -> Option<Duration> {
        match (error.code, error.retry_after_ms) {
            // A job can wait until its budget fills.
            (Code::BudgetExhausted, Some(wait_ms)) => {
                return Some(Duration::from_millis(wait_ms).min(LONGEST_PAUSE));
            }
            // Workers come back and queues empty, so this says nothing about the query.
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

    /// Whether nothing has been able to answer for a while.
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
