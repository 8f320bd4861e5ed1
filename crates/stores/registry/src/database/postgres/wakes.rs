//! Listens for other processes that announce work: `LISTEN` on a connection of its own.

use std::{sync::Arc, time::Duration};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{CHANNEL, LEAST_PAUSE, MOST_PAUSE, PING_LIMIT};

/// Silence after which the connection is tested: a cut in the network is not reported.
const SILENCE: Duration = Duration::from_secs(30);

/// The task that listens. It ends with this value.
#[derive(Debug)]
pub(crate) struct Wakes {
    task: AbortHandle,
}

impl Wakes {
    pub(super) fn listen(server: &PgConnectOptions, jobs: Arc<watch::Sender<u64>>) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(MOST_PAUSE)
            .connect_lazy_with(server.clone());
        let task = tokio::spawn(follow(pool, jobs)).abort_handle();
        Self { task }
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Listens for ever, with pauses while the server is away.
async fn follow(pool: PgPool, jobs: Arc<watch::Sender<u64>>) {
    let mut pause = LEAST_PAUSE;
    loop {
        let error = match PgListener::connect_with(&pool).await {
            Ok(listener) => {
                pause = LEAST_PAUSE;
                hear(listener, &jobs).await
            }
            Err(error) => error,
        };
        tracing::debug!(%error, "jobs of other processes are not heard of");
        sleep(pause).await;
        pause = (pause * 2).min(MOST_PAUSE);
    }
}

/// Passes on messages until the connection is lost.
async fn hear(mut listener: PgListener, jobs: &watch::Sender<u64>) -> sqlx::Error {
    listener.eager_reconnect(false);
    if let Err(error) = listener.listen(CHANNEL).await {
        return error;
    }
    loop {
        // Once at the start for messages that were missed before, then for each message.
        jobs.send_modify(|count| *count += 1);
        loop {
            match timeout(SILENCE, listener.try_recv()).await {
                Ok(Ok(Some(_))) => break,
                Ok(Ok(None)) => return sqlx::Error::WorkerCrashed,
                Ok(Err(error)) => return error,
                Err(_) => {
                    let asked = sqlx::query("select 1").execute(&mut listener);
                    match timeout(PING_LIMIT, asked).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return error,
                        Err(elapsed) => return sqlx::Error::Io(elapsed.into()),
                    }
                }
            }
        }
    }
}
