//! Measures how busy the machine is: this is a part of the result of a run.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval};

use super::Stage;
use crate::chaos::history::Event;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Least part of a processor's time that is assumed: a run ends on any machine.
const LEAST: f64 = 0.1;
/// Time for which a look keeps a processor busy.
const LOOK: Duration = Duration::from_millis(15);

/// A time limit that is stretched on a busy machine.
pub struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    /// This time on an idle machine.
    pub fn new(time: Duration) -> Self {
        Self {
            left: time,
            looked: Instant::now(),
        }
    }

    /// Whether it is over. Must be called often.
    pub fn is_over(&mut self, stage: &Stage) -> bool {
        let passed = self.looked.elapsed();
        self.looked += passed;
        let had = (1.0 - stage.last_waited()).max(LEAST);
        self.left = self.left.saturating_sub(passed.mul_f64(had));
        self.left.is_zero()
    }
}

/// Periodically records for how much of its time a busy thread waits for a processor.
pub async fn watch(stage: Arc<Stage>) -> Result<(), String> {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Some(waited) = super::blocking(look).await? {
            stage.waited(waited);
            stage.history.note(Event::Pace { waited });
        }
    }
}

/// `None` if the kernel does not show the scheduler's counts.
fn look() -> Option<f64> {
    let (begun, before) = (Instant::now(), waited()?);
    while begun.elapsed() < LOOK {
        std::hint::spin_loop();
    }
    let lost = waited()?.saturating_sub(before);
    Some((lost.as_secs_f64() / begun.elapsed().as_secs_f64()).min(1.0))
}

/// Total time that this thread has waited for a processor.
fn waited() -> Option<Duration> {
    let counted = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = counted.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}
