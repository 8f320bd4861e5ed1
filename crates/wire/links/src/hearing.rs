//! Measures for how long the other end of a link has been silent.
//!
//! Silence counts only while this end runs: a process that stood still has heard nothing, and the messages that others
//! sent meanwhile wait unread. So a time without a look counts as two beats, however long it was, and the other end is
//! lost only after looks at which it could have been heard.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the silence of one peer, from one look in each beat.
#[derive(Debug)]
pub(crate) struct SilenceMeter {
    /// Largest time that one look counts.
    most: Duration,
    silence: Duration,
    silent: Duration,
    looked: Instant,
}

impl SilenceMeter {
    /// Starts now. The caller looks once every `beat`. A peer that is silent for longer than `silence` is lost.
    pub(crate) fn new(beat: Duration, silence: Duration) -> Self {
        Self {
            most: (beat * 2).min(silence),
            silence,
            silent: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    /// Notes a message of the peer.
    pub(crate) fn heard(&mut self) {
        self.silent = Duration::ZERO;
        self.looked = Instant::now();
    }

    /// Makes one look. Returns whether the peer is lost.
    pub(crate) fn is_lost(&mut self) -> bool {
        let now = Instant::now();
        self.silent += now.duration_since(self.looked).min(self.most);
        self.looked = now;
        self.silent > self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(50);
    const SILENCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn silence_that_was_listened_to_counts() {
        let mut hearing = SilenceMeter::new(BEAT, SILENCE);
        for _ in 0..20 {
            tokio::time::advance(BEAT).await;
            assert!(!hearing.is_lost());
        }
        tokio::time::advance(BEAT).await;
        assert!(hearing.is_lost());
        hearing.heard();
        assert!(!hearing.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_listener_is_no_silence() {
        let mut hearing = SilenceMeter::new(BEAT, SILENCE);
        for _ in 0..9 {
            tokio::time::advance(SILENCE * 3).await;
            assert!(!hearing.is_lost());
        }
        // A slow listener does not excuse the peer for ever.
        tokio::time::advance(SILENCE * 3).await;
        tokio::time::advance(SILENCE * 3).await;
        hearing.is_lost();
        tokio::time::advance(SILENCE * 3).await;
        assert!(hearing.is_lost());
    }
}
