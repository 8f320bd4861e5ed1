//! The engine, and what can go wrong with it.

use std::{error::Error as _, future::Future, path::PathBuf, time::Duration};

use bollard::{API_DEFAULT_VERSION, Docker, errors::Error as EngineError};
use sextant_provider::Error;
use tokio::{sync::OnceCell, time::timeout};

use crate::{PROVIDER, Settings};

/// Never reached: calls are given their time one by one.
const CLIENT_TIMEOUT_S: u64 = 10 * 365 * 86_400;

/// A connection that is opened when it is first needed.
pub(crate) struct Engine {
    socket: PathBuf,
    time: Duration,
    client: OnceCell<Docker>,
}

/// Why the engine did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It did not answer.
    Away(String),
    /// It answered with a status of 400 or more.
    Status(u16, String),
    /// It answered what cannot be understood.
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

    /// The client, which speaks the newest version of the API that the engine knows, too.
    pub(crate) async fn client(&self) -> Result<Docker, Fault> {
        let open = self.client.get_or_try_init(async || {
            let path = self.socket.to_string_lossy();
            let client = Docker::connect_with_unix(&path, CLIENT_TIMEOUT_S, API_DEFAULT_VERSION)?;
            self.answer(client.negotiate_version()).await
        });
        open.await.cloned()
    }

    /// An answer within the engine's time.
    pub(crate) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, Fault> {
        self.answer_after(Duration::ZERO, call).await
    }

    /// An answer that the engine may begin to give after this much time.
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
    /// The container is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Status(404, _))
    }

    /// Somebody else is at it, such as its removal.
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

/// The library's errors name what they were doing; what happened is further in.
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
