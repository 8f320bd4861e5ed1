//! Campaigns for a role that has one leader.
//!
//! This process must not believe in a lease longer than the store does. So it counts the lease from
//! before the call that granted it, on a monotonic clock, and gives it up a little before its end.
//! A process that takes over after the lease finds no other that still believes to lead. The
//! exception is a process that was held up between reading its token and acting on it. Against
//! that, receivers refuse a token that is less than one they have seen.

use std::{future::Future, sync::Arc, time::Duration};

use sextant_metadata::{Candidate, Leader, MetadataStore};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use sextant_types::time::unix_ms;

/// The fencing token of this process while it leads; `None` while it does not.
pub type Token = watch::Receiver<Option<u64>>;

/// Number of renewals in the length of a lease.
const RENEWALS: u32 = 4;

/// The last part of a lease, one in `MARGIN`, in which this process no longer believes in it.
const MARGIN: u32 = 10;

/// Campaigns for a role and holds it as long as the store grants it.
pub struct Leadership {
    metadata: Arc<dyn MetadataStore>,
    candidate: Candidate,
    ttl: Duration,
    outlasts: bool,
    token: watch::Sender<Option<u64>>,
}

impl Leadership {
    /// Stands for `candidate.role` with leases of `ttl`, which must be at least a few milliseconds.
    /// Does nothing until it is [run](Self::run).
    pub fn new(metadata: Arc<dyn MetadataStore>, candidate: Candidate, ttl: Duration) -> Self {
        Self {
            metadata,
            candidate,
            ttl,
            outlasts: false,
            token: watch::Sender::new(None),
        }
    }

    /// Continues to lead while the store does not answer, beyond the lease, until another leader is
    /// known. Only for a role whose orders carry the token to receivers that refuse a lesser one:
    /// no process can take over without the store, and receivers obey the one that has reached it.
    pub fn outlasting_the_store(self) -> Self {
        Self {
            outlasts: true,
            ..self
        }
    }

    /// The token of this process while it leads. `None` once [`Self::run`] has ended.
    pub fn token(&self) -> Token {
        self.token.subscribe()
    }

    /// Campaigns until `shutdown`, then resigns, so that the next leader need not wait for the
    /// lease to end.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.campaign() => {}
        }
        let led = self.token.send_replace(None).is_some();
        if !led {
            return;
        }
        let resigned = tokio::time::timeout(self.ttl, self.metadata.resign(&self.candidate));
        match resigned.await {
            Ok(Ok(_)) => tracing::info!(role = %self.candidate.role, "stood down"),
            // The lease lapses by itself.
            Ok(Err(error)) => {
                tracing::warn!(role = %self.candidate.role, %error, "did not stand down");
            }
            Err(_) => tracing::warn!(role = %self.candidate.role, "the store did not answer"),
        }
    }

    async fn campaign(&self) {
        let period = self.ttl / RENEWALS;
        let belief = self.ttl - self.ttl / MARGIN;
        // The moment until which this process believes in the granted lease.
        let mut until = Instant::now();
        loop {
            let asked = Instant::now();
            let ttl_ms = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
            let call = self.metadata.campaign(&self.candidate, ttl_ms, unix_ms());
            let end = match self.leads() && !self.outlasts {
                true => until,
                false => asked + self.ttl,
            };
            match timeout_at(end, call).await {
                Ok(Ok(leader)) if self.is_ours(&leader) => {
                    until = asked + belief;
                    self.lead(leader.token);
                }
                Ok(Ok(leader)) => self.stand_by(&format!("`{}` leads", leader.candidate.endpoint)),
                Ok(Err(error)) => tracing::warn!(role = %self.candidate.role, %error, "no lease"),
                Err(_) => tracing::warn!(role = %self.candidate.role, "the store did not answer"),
            }
            let next = asked + period;
            if self.leads() && until <= next && !self.outlasts {
                sleep_until(until).await;
                self.stand_by("the lease ran out");
            }
            sleep_until(next).await;
        }
    }

    fn is_ours(&self, leader: &Leader) -> bool {
        leader.candidate.holder == self.candidate.holder
    }

    fn leads(&self) -> bool {
        self.token.borrow().is_some()
    }

    fn lead(&self, token: u64) {
        let before = self.token.send_if_modified(|known| {
            let changed = *known != Some(token);
            *known = Some(token);
            changed
        });
        if before {
            tracing::info!(role = %self.candidate.role, token, "leads");
        }
    }

    fn stand_by(&self, reason: &str) {
        if self.token.send_replace(None).is_some() {
            tracing::warn!(role = %self.candidate.role, reason, "leads no longer");
        }
    }
}

/// The token of a role without other candidates, as in a process that plays all roles.
pub fn always() -> Token {
    watch::Sender::new(Some(0)).subscribe()
}

/// Waits until the value is `desired`; for ever if the sender is gone.
pub async fn turned(leading: &mut watch::Receiver<bool>, desired: bool) {
    if leading.wait_for(|now| *now == desired).await.is_err() {
        std::future::pending::<()>().await;
    }
}
