//! How far the clock of a peer is ahead, without a common clock.
//!
//! Every message carries the time at which it was sent. The receiver sees *deltas*: its own clock
//! when a message came, less the sender's clock when it left, which is the message's way plus the
//! difference of the clocks. The least of the last [`WINDOW`] deltas belongs to the message with the
//! least delay. Each side tells the other its own; with equally fast fastest messages either way
//! half of their difference is the difference of the clocks, and the error is at most half of what
//! the two fastest messages differ by (Clockwork's published code does the same; the paper does not
//! say how clocks are compared). The window lets the estimate follow clocks that drift: old deltas
//! are forgotten with the messages that come.

use std::collections::VecDeque;

/// Deltas that are remembered.
pub const WINDOW: u64 = 1_024;

/// A minimum filter over the deltas of one peer's messages.
///
/// Times are nanoseconds on each side's own clock, whatever its beginning: differences beyond what
/// 63 bits hold, 292 years, saturate.
#[derive(Debug, Clone, Default)]
pub struct OffsetFilter {
    /// Messages so far.
    count: u64,
    /// (number of the message, delta), each larger than those before it: who is not the least now
    /// but may be when what is before it has left the window.
    rising: VecDeque<(u64, i64)>,
    /// What the peer has said of the way to it.
    remote: Option<i64>,
}

impl OffsetFilter {
    /// A message that the peer sent at `sent`, on its clock, came at `received` on the local one.
    /// Amortised O(1).
    pub fn on_message(&mut self, sent: u64, received: u64) {
        let delta = difference(received, sent);
        while self.rising.back().is_some_and(|(_, last)| *last >= delta) {
            self.rising.pop_back();
        }
        self.rising.push_back((self.count, delta));
        self.count += 1;
        while let Some((number, _)) = self.rising.front()
            && number + WINDOW < self.count
        {
            self.rising.pop_front();
        }
    }

    /// The peer has told its [`Self::least_delta`].
    pub fn on_peer(&mut self, least_delta: i64) {
        self.remote = Some(least_delta);
    }

    /// The peer was started again: its clock and the way to it may be others.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The least delta in the window, ns, to be sent to the peer with every message; `None` before
    /// the first message.
    pub fn least_delta(&self) -> Option<i64> {
        self.rising.front().map(|(_, delta)| *delta)
    }

    /// How far the local clock is ahead of the peer's, ns: (least delta here - least delta there)
    /// / 2. `None` until both are known.
    pub fn offset(&self) -> Option<i64> {
        let (local, remote) = (self.least_delta()?, self.remote?);
        // Exact without overflow; rounded towards zero.
        let halved = (i128::from(local) - i128::from(remote)) / 2;
        Some(halved.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// A time on the peer's clock, on the local one; unchanged while the offset is not known.
    pub fn to_local(&self, remote: u64) -> u64 {
        shifted(remote, self.offset().unwrap_or(0).into())
    }
}

fn difference(later: u64, earlier: u64) -> i64 {
    let exact = i128::from(later) - i128::from(earlier);
    exact.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// `u64::MAX` stands for never, and 0 for at once: neither is a time to be moved.
fn shifted(time: u64, by: i128) -> u64 {
    if time == 0 || time == u64::MAX {
        return time;
    }
    (i128::from(time) + by).clamp(0, u64::MAX.into()) as u64
}
