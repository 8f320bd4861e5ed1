//! The engine and its errors.

use std::{error::Error as _, future::Future, path::PathBuf, time::Duration};

use bollard::{API_DEFAULT_VERSION, Docker, errors::Error as EngineError};
use sextant_provider::Error;
use tokio::{sync::OnceCell, time::timeout};

use crate::{PROVIDER, Settings};

/// Never reached: each call has a time limit of its own.
const CLIENT_TIMEOUT_S: u64 = 10 * 365 * 86_400;

/// A connection that is opened when it is first used.
pub(crate) struct Engine {
    socket: PathBuf,
    time: Duration,
    client: OnceCell<Docker>,
}

/// Why a call of the engine failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It did not answer.
    Away(String),
    /// It answered with a status of 400 or more.
    Status(u16, String),
    /// Its answer is invalid.
    Odd(String),
}

// === impl Engine ===

impl Engine {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            socket: settings.socket.clone(),
            time: Duration::from_millis(settings.timeout_ms),
            client: OnceCell::new(),
        }
    }

    /// The client. It uses the newest version of the API that the engine supports as well.
    pub(crate) async fn client(&self) -> Result<Docker, Fault> {
        let open = self.client.get_or_try_init(async || {
            let path = self.socket.to_string_lossy();
            let client = Docker::connect_with_unix(&path, CLIENT_TIMEOUT_S, API_DEFAULT_VERSION)?;
            self.answer(client.negotiate_version()).await
        });
        open.await.cloned()
    }

    /// Waits for an answer within the time limit.
    pub(crate) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, Fault> {
        self.answer_after(Duration::ZERO, call).await
    }

    /// Waits for an answer that the engine may begin after this time.
    pub(crate) async fn answer_after<T>(
        &self,
        after: Duration,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, Fault> {
        match timeout(self.time.saturating_add(after), call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Fault::Away(format!(
                "no answer within {} ms",
                self.time.saturating_add(after).as_millis()
            ))),
        }
    }

    pub(crate) fn error(&self, what: &str, fault: Fault) -> Error {
        let provider = PROVIDER;
        match fault {
            Fault::Away(reason) => Error::Away {
                provider,
                reason: format!("`{}`: {reason}", self.socket.display()),
            },
            Fault::Status(status, message) => Error::Refused {
                provider,
                reason: format!("{what}: status {status}, {}", message.trim()),
            },
            Fault::Odd(reason) => Error::Refused {
                provider,
                reason: format!("{what}: {reason}"),
            },
        }
    }
}

// === impl Fault ===

impl Fault {
    /// Whether the container does not exist any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Status(404, _))
    }

    /// Whether something else works on the container, such as its removal.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Status(409, _))
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::DockerResponseServerError {
                status_code,
                message,
            } => Self::Status(status_code, message),
            EngineError::SocketNotFoundError(_) => Self::Away(
                "there is no such socket: start the engine, or name its socket".to_owned(),
            ),
            EngineError::RequestTimeoutError
            | EngineError::IOError { .. }
            | EngineError::HyperResponseError { .. }
            | EngineError::HyperLegacyError { .. } => Self::Away(with_sources(&error)),
            other => Self::Odd(with_sources(&other)),
        }
    }
}

/// The library's errors name the operation; the cause is in their sources.
fn with_sources(error: &EngineError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
