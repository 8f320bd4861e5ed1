//! Estimates the offset of a peer's clock without a common clock.
//!
//! Every message carries the time at which it was sent. The receiver computes a *delta*: its own
//! clock when the message arrived, less the sender's clock when it was sent. A delta is the
//! message's delay plus the difference of the clocks. The least of the last [`WINDOW`] deltas
//! belongs to the message with the least delay. Each side tells the other its own least delta. If
//! the fastest messages in both directions are equally fast, half of the difference of the two
//! least deltas is the difference of the clocks. The error is at most half of the difference
//! between the delays of the two fastest messages (Clockwork's published code does the same; the
//! paper does not say how clocks are compared). Because of the window the estimate follows clocks
//! that drift: new messages replace old deltas.

use std::collections::VecDeque;

/// Number of deltas that are remembered.
pub const WINDOW: u64 = 1_024;

/// A minimum filter over the deltas of one peer's messages.
///
/// Times are nanoseconds on each side's own clock, whatever its origin. Differences beyond 63 bits
/// (292 years) saturate.
#[derive(Debug, Clone, Default)]
pub struct OffsetFilter {
    /// Number of messages so far.
    count: u64,
    /// (number of the message, delta), with growing deltas: those that may become the least when
    /// earlier ones have left the window.
    rising: VecDeque<(u64, i64)>,
    /// The least delta that the peer has reported.
    remote: Option<i64>,
}

impl OffsetFilter {
    /// Notes a message that the peer sent at `sent`, on its clock, and that arrived at `received`
    /// on the local clock. Amortised O(1).
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

    /// Notes the peer's [`Self::least_delta`].
    pub fn on_peer(&mut self, least_delta: i64) {
        self.remote = Some(least_delta);
    }

    /// Forgets everything: the peer was restarted, and its clock and the delay to it may differ.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The least delta in the window, ns, to send to the peer with every message; `None` before the
    /// first message.
    pub fn least_delta(&self) -> Option<i64> {
        self.rising.front().map(|(_, delta)| *delta)
    }

    /// How far the local clock is ahead of the peer's, ns: (local least delta - peer's least delta)
    /// / 2. `None` until both are known.
    pub fn offset(&self) -> Option<i64> {
        let (local, remote) = (self.least_delta()?, self.remote?);
        // Exact without overflow; rounded towards zero.
        let halved = (i128::from(local) - i128::from(remote)) / 2;
        Some(halved.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Converts a time on the peer's clock to the local one; unchanged while the offset is not
    /// known.
    pub fn to_local(&self, remote: u64) -> u64 {
        shifted(remote, self.offset().unwrap_or(0).into())
    }
}

fn difference(later: u64, earlier: u64) -> i64 {
    let exact = i128::from(later) - i128::from(earlier);
    exact.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// `u64::MAX` means never, and 0 means at once: neither is shifted.
fn shifted(time: u64, by: i128) -> u64 {
    if time == 0 || time == u64::MAX {
        return time;
    }
    (i128::from(time) + by).clamp(0, u64::MAX.into()) as u64
}
