//! The worker's threads, with the work of each, and the replacement of stuck threads.

use std::{
    io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

use sextant_rpc::InferError;

use super::{
    Core,
    open::{RunningBatch, WatchSlot},
    run,
};
use crate::{
    pin::{self, ThreadPin},
    timed_queue::lock,
};

/// See the module.
#[derive(Default)]
pub(super) struct Threads(Mutex<Vec<Member>>);

/// What a thread does.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// Runs batches; the number starts at 0.
    Exec(usize),
    /// Takes inputs to the device and outputs from it.
    Io,
}

struct Member {
    role: Role,
    watched: Arc<WatchSlot>,
    thread: JoinHandle<()>,
}

impl Threads {
    /// Starts a thread.
    pub(super) fn start(core: &Arc<Core>, role: Role) -> io::Result<()> {
        let member = Member::start(core, role)?;
        lock(&core.threads.0).push(member);
        Ok(())
    }

    /// Gives up the threads that are past their limits. Before the shutdown, it starts other
    /// threads in their places. A stuck thread is detached: it ends by itself if it returns.
    pub(super) fn replace_stuck(core: &Arc<Core>, now: Instant, stopped: bool) {
        let mut given_up = Vec::new();
        let mut members = lock(&core.threads.0);
        members.retain_mut(|member| {
            let Some(running) = member.watched.take_overdue(now) else {
                return true;
            };
            if stopped {
                given_up.push(running);
                return false;
            }
            match Member::start(core, member.role) {
                Ok(replacement) => {
                    *member = replacement;
                    given_up.push(running);
                }
                Err(error) => {
                    tracing::error!(%error, "a stuck thread cannot be replaced");
                    // The replacement is tried again at the next look. Until then the old thread
                    // goes on if it returns.
                    member.watched.begin(running);
                }
            }
            true
        });
        drop(members);
        for running in given_up {
            answer(core, running, now);
        }
    }

    /// Whether all threads have ended.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.0)
            .iter()
            .all(|member| member.watched.has_ended())
    }

    /// Whether the calling thread is one of these threads.
    pub(super) fn is_member(&self) -> bool {
        let this = thread::current().id();
        let members = lock(&self.0);
        members.iter().any(|it| it.thread.thread().id() == this)
    }

    /// Takes the threads out, so that the caller can join them.
    pub(super) fn take(&self) -> Vec<JoinHandle<()>> {
        let members = std::mem::take(&mut *lock(&self.0));
        members.into_iter().map(|member| member.thread).collect()
    }
}

/// Answers the batch of a stuck thread and gives up the instance.
fn answer(core: &Core, running: RunningBatch, now: Instant) {
    let ran = now.saturating_duration_since(running.since);
    let reason = format!("the engine has not come back for `{}` ms", ran.as_millis());
    core.shared.give_up(&running.instance, &reason);
    core.queue.unstage(&running.instance);
    if let Some(key) = running.place {
        core.queue.give_up(&key);
    }
    let variant = running.open.variant.clone();
    running.open.refuse(InferError::Lost { variant, reason });
}

impl Member {
    fn start(core: &Arc<Core>, role: Role) -> io::Result<Self> {
        let watched = Arc::<WatchSlot>::default();
        let (shared_core, shared_watched) = (Arc::clone(core), Arc::clone(&watched));
        let name = match role {
            Role::Exec(number) => format!("sextant-exec-{number}"),
            Role::Io => "sextant-io".to_owned(),
        };
        let thread = thread::Builder::new()
            .name(name)
            .stack_size(sextant_engine::STACK_BYTES)
            .spawn(move || {
                let (core, watched) = (shared_core, shared_watched);
                pin::wake_exactly();
                match role {
                    Role::Exec(number) => run::exec(&core, &watched, ThreadPin::new(number)),
                    Role::Io => run::io(&core, &watched),
                }
                watched.leave();
                core.wake_watch();
            })?;
        Ok(Self {
            role,
            watched,
            thread,
        })
    }
}
