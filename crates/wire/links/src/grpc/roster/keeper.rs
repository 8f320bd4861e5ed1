//! Keeps the link to one worker in another process.

use std::{sync::Arc, time::Instant};

use sextant_types::WorkerId;
use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Roster, RosterEvent};
use crate::{back_off::BackOff, link::RemoteWorker};

/// Keeps a link to one worker until it is dropped.
pub(super) struct Keeper {
    pub(super) endpoint: Arc<str>,
    lease_until_ms: u64,
    again: Arc<Notify>,
    end: CancellationToken,
    task: Option<JoinHandle<()>>,
}

struct Task {
    roster: Arc<Roster>,
    name: WorkerId,
    endpoint: Arc<str>,
    again: Arc<Notify>,
    end: CancellationToken,
}

impl Keeper {
    /// Starts the keeper. The events of an earlier keeper of the worker come first.
    pub(super) fn start(
        roster: &Arc<Roster>,
        name: &WorkerId,
        endpoint: &Arc<str>,
        before: Option<JoinHandle<()>>,
    ) -> Self {
        let (again, end) = (Arc::<Notify>::default(), CancellationToken::new());
        let task = Task {
            roster: Arc::clone(roster),
            name: name.clone(),
            endpoint: Arc::clone(endpoint),
            again: Arc::clone(&again),
            end: end.clone(),
        };
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                drop(before.await);
            }
            task.run().await;
        });
        Self {
            endpoint: Arc::clone(endpoint),
            lease_until_ms: 0,
            again,
            end,
            task: Some(task),
        }
    }

    /// Notes the end of the worker's lease. If that is new and the worker is not reached, it is tried at once.
    pub(super) fn nudge(&mut self, lease_until_ms: u64) {
        if self.lease_until_ms != lease_until_ms {
            self.lease_until_ms = lease_until_ms;
            self.again.notify_waiters();
        }
    }

    /// Ends the keeper. The task ends when the worker's disappearance has been published.
    pub(super) fn end(&mut self) -> JoinHandle<()> {
        self.end.cancel();
        self.task.take().unwrap_or_else(|| tokio::spawn(async {}))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_cancelled()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Task {
    async fn run(self) {
        let mut back_off = BackOff::new(self.roster.options.retry);
        let mut failed = false;
        while !self.end.is_cancelled() {
            let begun = Instant::now();
            match self.link().await {
                Ok(()) => failed = false,
                // Logged once for each outage; the attempts go on.
                Err(reason) if !failed => {
                    failed = true;
                    tracing::warn!(worker = %self.name, %reason, "a worker is not reached");
                }
                Err(reason) => tracing::debug!(worker = %self.name, %reason, "not reached"),
            }
            back_off.lasted(begun.elapsed());
            tokio::select! {
                () = self.end.cancelled() => return,
                () = self.again.notified() => {}
                () = back_off.wait() => {}
            }
        }
    }

    /// Reaches the worker and keeps the link until it breaks.
    async fn link(&self) -> Result<(), String> {
        let options = self.roster.options;
        let connecting = async {
            let connector = &self.roster.connector;
            let link = connector.connect_worker(&self.name, &self.endpoint).await;
            let link = link.map_err(|error| error.to_string())?;
            let greeting = RemoteWorker::connect(link, options.clock, options.link);
            match timeout(options.link.silence, greeting).await {
                Ok(Ok(connected)) => Ok(connected),
                Ok(Err(broken)) => Err(broken.to_string()),
                Err(_) => Err(format!("it says nothing for {:?}", options.link.silence)),
            }
        };
        let (worker, connection) = tokio::select! {
            connected = connecting => connected?,
            () = self.end.cancelled() => return Ok(()),
        };
        tracing::info!(worker = %self.name, endpoint = %self.endpoint, "a worker is reached");
        self.roster
            .publish(&RosterEvent::Up(self.name.clone(), worker));
        let ended = connection.run(self.end.cancelled()).await;
        self.roster.publish(&RosterEvent::Down(self.name.clone()));
        tracing::info!(worker = %self.name, broke = ended.is_err(), "a worker is no longer reached");
        Ok(())
    }
}
