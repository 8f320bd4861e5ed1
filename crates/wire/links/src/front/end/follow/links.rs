//! Keeps one link: opens it, and opens it again after it broke.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use sextant_metadata::Leader;
use sextant_types::WorkerId;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};

use super::{every, give};
use crate::{
    back_off::BackOff,
    front::{
        Connector, DispatcherLink, FromDispatcher, FrontEnd, FrontReport, MailboxLink, Unreachable,
    },
    hearing::SilenceMeter,
    link::Broken,
    mailbox::{FromMailbox, ToMailbox},
};

/// Number of signs of life that are sent at once on a new link, so that the clocks are compared
/// soon.
const PRIMERS: u32 = 8;

/// Number of beats of the link to the dispatcher for each beat on a link to a mailbox.
const MAILBOX_BEATS: u32 = 5;

/// Longest time of an attempt to open a link.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Time for which a worker that has left may still send outputs.
const LINGER: Duration = Duration::from_secs(5);

/// Keeps a link to the leader.
pub(super) async fn follow_leader(
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    mut leaders: watch::Receiver<Option<Leader>>,
) {
    let mut back_off = BackOff::new(front.options.back_off);
    loop {
        let leader = leaders.borrow_and_update().clone();
        let following = async {
            let Some(leader) = leader else {
                return std::future::pending().await;
            };
            let endpoint = Arc::clone(&leader.candidate.endpoint);
            match open(connector.connect_dispatcher(&endpoint)).await {
                Ok(link) => {
                    let since = Instant::now();
                    let Err(Broken) = stay_connected(&front, leader, link).await;
                    back_off.lasted(since.elapsed());
                    tracing::warn!(%endpoint, "the link to the dispatcher broke");
                }
                Err(error) => tracing::debug!(%endpoint, %error, "the dispatcher is not reached"),
            }
            back_off.wait().await;
        };
        tokio::select! {
            () = following => {}
            changed = leaders.changed() => match changed {
                Ok(()) => back_off.reset(),
                Err(_) => return,
            }
        }
    }
}

/// Receives the dispatcher's messages until the link breaks or falls silent.
async fn stay_connected(
    front: &FrontEnd,
    leader: Leader,
    link: DispatcherLink,
) -> Result<Infallible, Broken> {
    let number = front.state().open_dispatcher(leader, Arc::clone(&link));
    let _open = OnDrop(|| give(front.state().lose_dispatcher(number)));
    for _ in 0..PRIMERS {
        front.state().beat(number)?;
    }
    let mut beats = every(front.options.beat);
    let mut hearing = SilenceMeter::new(front.options.beat, front.options.silence);
    loop {
        tokio::select! {
            message = link.receive() => {
                receive(front, number, message?);
                hearing.heard();
            }
            _ = beats.tick() => {
                if hearing.is_lost() {
                    return Err(Broken);
                }
                front.state().beat(number)?;
            }
        }
    }
}

fn receive(front: &FrontEnd, number: u64, message: FromDispatcher) {
    let mut state = front.state();
    state.on_stamp(number, &message.stamp);
    let settled = match message.body {
        FrontReport::Beat { utilization, leads } => {
            state.on_beat(number, utilization, leads);
            None
        }
        FrontReport::Assign(assignment) => {
            state.on_assign(number, assignment);
            None
        }
        FrontReport::Has(has) => state.on_has(number, has),
        FrontReport::Done { query, outcome } => state.on_done(number, query, outcome),
        FrontReport::Answered { query, outcome } => state.on_answered(number, query, outcome),
        FrontReport::Declined { query } => {
            state.on_declined(number, query);
            None
        }
    };
    drop(state);
    give(settled);
}

/// Keeps a link to the mailbox of one worker until the worker has `left`.
pub(super) async fn follow_mailbox(
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    (worker, endpoint): (WorkerId, Arc<str>),
    mut left: oneshot::Receiver<()>,
) {
    let mut back_off = BackOff::new(front.options.back_off);
    loop {
        let opening = open(connector.connect_mailbox(&worker, &endpoint));
        let opened = tokio::select! {
            opened = opening => opened,
            _ = &mut left => return,
        };
        match opened {
            Ok(link) => {
                let since = Instant::now();
                let keeping = stay_open(&front, &worker, link);
                tokio::pin!(keeping);
                tokio::select! {
                    Err(Broken) = &mut keeping => {}
                    _ = &mut left => return drop(timeout(LINGER, keeping).await),
                }
                back_off.lasted(since.elapsed());
                tracing::warn!(%worker, "the link to the worker's mailbox broke");
            }
            Err(error) => tracing::debug!(%worker, %error, "the worker's mailbox is not reached"),
        }
        tokio::select! {
            () = back_off.wait() => {}
            _ = &mut left => return,
        }
    }
}

/// Receives outputs until the link breaks or falls silent.
async fn stay_open(
    front: &FrontEnd,
    worker: &WorkerId,
    link: MailboxLink,
) -> Result<Infallible, Broken> {
    let number = front.state().open_mailbox(worker, Arc::clone(&link));
    let _open = OnDrop(|| give(front.state().lose_mailbox(worker, number)));
    let beat = front.options.beat * MAILBOX_BEATS;
    let mut beats = every(beat);
    let mut hearing = SilenceMeter::new(beat, front.options.silence);
    loop {
        tokio::select! {
            message = link.receive() => {
                if let FromMailbox::Outputs { ticket, outcome } = message? {
                    let settled = front.state().on_outputs(ticket, outcome);
                    give(settled);
                }
                hearing.heard();
            }
            _ = beats.tick() => {
                if hearing.is_lost() {
                    return Err(Broken);
                }
                link.send(ToMailbox::Beat)?;
            }
        }
    }
}

async fn open<L>(opening: impl Future<Output = Result<L, Unreachable>>) -> Result<L, Unreachable> {
    let late = |_| Err(Unreachable("it does not answer".to_owned()));
    timeout(CONNECT_WAIT, opening).await.unwrap_or_else(late)
}

/// Calls a function when a task ends in any way.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
