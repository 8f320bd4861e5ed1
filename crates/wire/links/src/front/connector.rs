//! What a front end requires of a transport.

use std::sync::Arc;

use async_trait::async_trait;
use sextant_types::WorkerId;

use super::{FromDispatcher, ToDispatcher};
use crate::{
    link::Link,
    mailbox::{FromMailbox, ToMailbox},
};

/// A front end's end of its link to a dispatcher.
pub type DispatcherLink = Arc<dyn Link<ToDispatcher, FromDispatcher>>;

/// A front end's end of its link to a worker's mailbox.
pub type MailboxLink = Arc<dyn Link<ToMailbox, FromMailbox>>;

/// Why a link could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// Opens links. Each call makes one attempt and ends within a second or two; the front end repeats
/// it. Dropping the link closes it.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Opens a link to the dispatcher at `endpoint`, `host:port`.
    async fn connect_dispatcher(&self, endpoint: &str) -> Result<DispatcherLink, Unreachable>;

    /// Opens a link to the mailbox of `worker` at `endpoint`, `host:port`.
    async fn connect_mailbox(
        &self,
        worker: &WorkerId,
        endpoint: &str,
    ) -> Result<MailboxLink, Unreachable>;
}
