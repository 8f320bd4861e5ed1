//! Pauses between two attempts.

use std::time::Duration;

use crate::front::end::{FrontOptions, random_share};

/// Growing pauses, with a random part so that front ends do not come back all at once.
pub(super) struct BackOff {
    least: Duration,
    most: Duration,
    next: Duration,
}

// === impl BackOff ===

impl BackOff {
    pub(super) fn new(options: &FrontOptions) -> Self {
        let (least, most) = options.back_off;
        Self {
            least,
            most,
            next: least,
        }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.least;
    }

    /// A link was open for that time.
    pub(super) fn lasted(&mut self, time: Duration) {
        if time > self.most {
            self.reset();
        }
    }

    pub(super) async fn wait(&mut self) {
        let pause = self.next.mul_f64(0.5 + random_share() / 2.0);
        self.next = (self.next * 2).min(self.most);
        tokio::time::sleep(pause).await;
    }
}
