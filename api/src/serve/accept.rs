//! Accepting connections, and making room for them.
//!
//! As in nginx: if the number of connections has reached its limit, the server closes idle connections, those that have
//! been idle longest first. A connection that has not sent a whole head yet counts as idle. If no connection is idle,
//! new ones wait: one that was accepted, and the others in the listener's queue. So silent connections shut nobody out,
//! and a client that is being answered is not cut off.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use futures::future::select_all;
use tokio::{
    net::TcpStream,
    task::{Id, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Listener, Patience, activity::Activity, connection::Serving};
use crate::{ApiState, Tls, router};

/// Pause before another attempt if there is no room: no connection could be closed, or there is no file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When there is no room, one in so many connections is closed at once, so that the list is searched rarely.
const PART_CLOSED: usize = 64;

/// The open connections.
pub(super) struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, Arc<Activity>>,
    max: usize,
    epoch: Instant,
    begun: u64,
}

/// Accepts connections for ever.
pub(super) async fn accept(
    listeners: &[Listener],
    state: &ApiState,
    shutdown: &CancellationToken,
    connections: &mut Connections,
) -> Infallible {
    let router = router(state.clone());
    let patience = Patience::of(state.limits());
    loop {
        let accepted = tokio::select! {
            accepted = next(listeners) => accepted,
            () = connections.one_ended() => continue,
        };
        match accepted {
            Ok((stream, tls)) => {
                connections.wait_for_room().await;
                let serving = |activity| Serving {
                    router: Router::clone(&router),
                    activity,
                    patience,
                    shutdown: shutdown.clone(),
                };
                connections.begin(serving, stream, tls);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                connections.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The next connection of any listener, and how it is encrypted.
async fn next(listeners: &[Listener]) -> io::Result<(TcpStream, Option<Tls>)> {
    let each = listeners.iter().map(|listener| {
        Box::pin(async {
            let (stream, _) = listener.socket.accept().await?;
            Ok((stream, listener.tls.clone()))
        })
    });
    select_all(each).await.0
}

// === impl Connections ===

impl Connections {
    /// An empty set that holds at most `max`.
    pub fn new(max: usize) -> Self {
        Self {
            tasks: JoinSet::new(),
            open: HashMap::new(),
            max,
            epoch: Instant::now(),
            begun: 0,
        }
    }

    /// Waits until all connections have ended.
    pub async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Waits until there is room for one more.
    async fn wait_for_room(&mut self) {
        while self.open.len() >= self.max {
            self.make_room();
            // A connection that is busy now may be idle after the pause.
            timeout(ACCEPT_PAUSE, self.one_ended()).await.ok();
        }
    }

    fn begin(
        &mut self,
        serving: impl FnOnce(Arc<Activity>) -> Serving,
        stream: TcpStream,
        tls: Option<Tls>,
    ) {
        self.begun += 1;
        let activity = Arc::new(Activity::new(self.begun, self.epoch));
        let connection = serving(Arc::clone(&activity)).connection(stream, tls);
        let task = self.tasks.spawn(connection);
        self.open.insert(task.id(), activity);
    }

    /// Waits until a connection has ended, and forgets it; waits for ever if there is none.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => return std::future::pending().await,
        };
        self.open.remove(&id);
    }

    /// Tells the connections that have been idle longest to end.
    fn make_room(&self) {
        let ending = self.open.values().filter(|it| it.is_told_to_end()).count();
        let wanted = (self.max / PART_CLOSED + 1).saturating_sub(ending);
        let mut idle: Vec<_> = self
            .open
            .values()
            .filter(|it| !it.is_told_to_end())
            .filter_map(|it| Some((it.idle_since_ms()?, it.number, it)))
            .collect();
        idle.sort_unstable_by_key(|(since_ms, number, _)| (*since_ms, *number));
        for (_, _, activity) in idle.iter().take(wanted) {
            activity.end();
        }
    }
}

fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
