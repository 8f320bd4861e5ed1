//! Sizes and times of connections.

use std::time::Duration;

/// Most bytes in flight on one stream: a large tensor needs no pause on a fast network.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// Most bytes in flight on one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// Size of an HTTP/2 frame, bytes.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;

/// Time between two pings of a connection. Links have their own, more frequent signs of life. The
/// pings remove connections of vanished peers.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Time without an answer to a ping after which the connection ends.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The size limits of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest message, bytes. A larger message is sent without its tensors, and the waiting caller
    /// is told.
    pub message_bytes: usize,
    /// Largest number of messages in the queue of one link; one more breaks the link.
    pub queued_messages: usize,
    /// Largest number of bytes in the queue of one link; more break the link.
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
    /// Largest frame that is accepted, bytes: one message plus the error of its estimated size.
    pub(crate) fn frame_bytes(self) -> usize {
        self.message_bytes + self.message_bytes / 8 + (1 << 20)
    }
}
