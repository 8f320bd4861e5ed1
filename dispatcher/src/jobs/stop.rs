//! Why the running of a job ended, and what is worth another attempt.

use std::{future::Future, time::Duration};

use sextant_rpc::QueryError;
use sextant_types::Code;

/// How often a call is made before its error is believed.
pub(crate) const ATTEMPTS: u32 = 20;

/// Longest pause between two attempts.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why a run ended before the job did.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The job is cancelled, or another runner has it.
    NotOurs,
    /// It cannot be done.
    Failed { code: Code, message: String },
}

/// Pauses between attempts: twice as long each time.
pub(crate) struct Pauses(Duration);

impl Pauses {
    /// Begins with a short one.
    pub(crate) fn new() -> Self {
        Self(Duration::from_millis(5))
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
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
