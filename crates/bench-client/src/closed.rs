//! A closed loop: who has an answer asks again.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::run::Lane;

/// How long somebody who found no server waits.
const PAUSE: Duration = Duration::from_millis(50);

/// One connection's queries, until the load is over.
pub(crate) async fn run(lane: &Lane) {
    tokio::time::sleep_until(lane.clock.begin).await;
    let mut connection = None;
    loop {
        let due = Instant::now();
        if lane.is_over(due) {
            return;
        }
        lane.take_up(due, due);
        let asked = timeout_at(due + lane.timeout, lane.ask(connection.take(), due));
        connection = match asked.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(_)) => {
                sleep(PAUSE).await;
                None
            }
            Err(_) => {
                lane.broke(due, "timeout");
                None
            }
        };
    }
}
