//! Sizes and times of connections.

use std::time::Duration;

/// What one stream may have under way, bytes: a large tensor needs no pause on a fast network.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// What one connection may have under way, bytes.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// Size of an HTTP/2 frame, bytes.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;

/// Time between two pings of a connection. Links have signs of life of their own, more often; these
/// end what a vanished peer has left behind.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A ping without an answer for so long ends the connection.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sizes that a link keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest message, bytes. A larger one goes without its tensors, and whoever waits is told.
    pub message_bytes: usize,
    /// Messages that may wait to be sent on one link; one more breaks it.
    pub queued_messages: usize,
    /// Bytes that may wait to be sent on one link; more break it.
    pub queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            queued_messages: 1 << 18,
            queued_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// Largest frame that is accepted, bytes: one message and what its sizes are estimated short by.
    pub(crate) fn frame_bytes(self) -> usize {
        self.message_bytes + self.message_bytes / 8 + (1 << 20)
    }
}
