//! An open loop: a query is sent when it is due, whatever has become of those before it.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc::Sender},
    time::{Instant, timeout_at},
};

use crate::{connection::Connection, run::Lane, timer::Timer};

/// How long nobody looks whether the load was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// Connections that queries take and give back.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Connection>>,
    /// One for each connection that may be open; queries get them in the order in which they were due.
    places: Semaphore,
}

/// Sends queries at these times, from the beginning of the load, until it is over. Each holds a copy of `under_way`
/// to its end.
pub(crate) async fn run(
    lane: Arc<Lane>,
    times: impl Iterator<Item = Duration>,
    pool: Arc<Pool>,
    under_way: Sender<()>,
) -> io::Result<()> {
    let timer = Timer::new()?;
    for time in times {
        let Some(due) = lane.clock.begin.checked_add(time) else {
            break;
        };
        if due >= lane.clock.end || !is_reached(&timer, &lane, due).await? {
            break;
        }
        lane.take_up(due, Instant::now());
        let (lane, pool, ended) = (Arc::clone(&lane), Arc::clone(&pool), under_way.clone());
        tokio::spawn(async move {
            let asked = timeout_at(due + lane.timeout, pool.ask(&lane, due)).await;
            if asked.is_err() {
                lane.broke(due, "timeout");
            }
            drop(ended);
        });
    }
    Ok(())
}

/// Waits until then; false where the load was stopped before.
async fn is_reached(timer: &Timer, lane: &Lane, due: Instant) -> io::Result<bool> {
    loop {
        let now = Instant::now();
        if lane.is_over(now.min(due)) {
            return Ok(false);
        }
        timer.until(due.min(now + LOOK)).await?;
        if due <= Instant::now() {
            return Ok(true);
        }
    }
}

// === impl Pool ===

impl Pool {
    /// At most so many connections, none of them open yet.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            idle: Mutex::default(),
            places: Semaphore::new(most),
        }
    }

    /// Sends a query as soon as there is a connection for it.
    async fn ask(&self, lane: &Lane, due: Instant) {
        let Ok(_place) = self.places.acquire().await else {
            return;
        };
        let idle = self.idle.lock().pop();
        if let Ok(Some(connection)) = lane.ask(idle, due).await {
            self.idle.lock().push(connection);
        }
    }
}
