//! Pauses between two attempts.

use std::time::Duration;

/// Growing pauses with a random part, so that processes that lost the same peer do not return at the same moment.
pub(crate) struct BackOff {
    least: Duration,
    most: Duration,
    next: Duration,
}

// === impl BackOff ===

impl BackOff {
    pub(crate) fn new((least, most): (Duration, Duration)) -> Self {
        Self {
            least,
            most,
            next: least,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }

    /// Notes for how long a link was open.
    pub(crate) fn lasted(&mut self, time: Duration) {
        if time > self.most {
            self.reset();
        }
    }

    /// Waits for half to all of a pause that doubles each time.
    pub(crate) async fn wait(&mut self) {
        let pause = self.next.mul_f64(0.5 + 0.5 * rand::random::<f64>());
        self.next = (self.next * 2).min(self.most);
        tokio::time::sleep(pause).await;
    }
}
