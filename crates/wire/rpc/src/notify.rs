//! Messages to webhooks.

use async_trait::async_trait;
use bytes::Bytes;

/// A message to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its address.
    pub url: String,
    /// The same for each attempt, so that a receiver recognises repetitions.
    pub id: String,
    /// A JSON document.
    pub body: Bytes,
}

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DeliveryFailure {
    /// What happened, without the address.
    pub reason: String,
    /// Whether the same message may be accepted later.
    pub retry: bool,
}

/// Sends messages to webhooks.
///
/// Contract: one call is one attempt, which ends within seconds. `Ok` contains the status of an
/// answer, between 200 and 299. A dropped call may or may not have delivered the message.
#[async_trait]
pub trait Notify: Send + Sync {
    /// Sends one message.
    async fn notify(&self, notice: &Notice) -> Result<u16, DeliveryFailure>;
}
