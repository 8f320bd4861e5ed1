//! Machines that a program of the user's starts and ends, usually a script that uses a cloud's tools.
//!
//! The program is called with `list`, `up` or `down` as its last argument. It reads one JSON object from its standard
//! input and writes one to its standard output:
//!
//! | call | input | output |
//! |---|---|---|
//! | `list` | `{"pool": "cpu-8"}` | `{"machines": [{"id": "i-1", "worker": "cpu-8-0a1b2c3d", "state": "running", "since_ms": 1700000000000}]}` |
//! | `up` | `{"pool": "cpu-8", "workers": ["cpu-8-0a1b2c3d", "cpu-8-4e5f6071"]}` | `{"machines": [..]}`, those that it has started |
//! | `down` | `{"pool": "cpu-8", "machines": ["i-1"], "end_ms": 30000}` | `{}` or nothing |
//!
//! `docs/scaling.md` states what each call must do. One call runs at a time.
//!
//! The program is trusted to manage machines, but its answers are checked as a whole, and an invalid answer has no
//! effect. Two things are remembered, because the tools of clouds report them late: a machine that `up` has started is
//! listed as starting, and a machine that `down` was told of is listed as ending, until the program's own list shows
//! it, but at most for [`Settings::settle_ms`]. After a restart only the program's list is known.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::{Error, Machine, MachineId, Pool, Provider};

mod answer;
mod call;
mod machines;
mod memory;

use machines::Machines;

/// The name of the provider in its errors.
const PROVIDER: &str = "command";

/// Longest answer, bytes.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The program and its time limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its path, or its name in `PATH`.
    pub program: String,
    /// Arguments before `list`, `up` or `down`.
    pub arguments: Vec<String>,
    /// Variables that it gets in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Time after which a call is ended, ms.
    pub timeout_ms: u64,
    /// Longest time by which its list may lag behind what it has started and what it was told to end, ms.
    pub settle_ms: u64,
}

/// Calls the program.
pub struct Script {
    machines: Arc<Mutex<Machines>>,
}

// === impl Script ===

impl Script {
    /// Starts nothing: if the program does not exist, the first call fails.
    pub fn new(settings: Settings) -> Self {
        let machines = Arc::new(Mutex::new(Machines::new(settings)));
        Self { machines }
    }
}

/// Each call runs in a task of its own, so that it goes on if its caller drops it.
#[async_trait]
impl Provider for Script {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let (machines, pool) = (Arc::clone(&self.machines), pool.clone());
        joined(tokio::spawn(async move {
            machines.lock().await.list(&pool).await
        }))
        .await
    }

    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error> {
        let (machines, pool) = (Arc::clone(&self.machines), pool.clone());
        joined(tokio::spawn(async move {
            machines.lock().await.grow(&pool, count).await
        }))
        .await
    }

    async fn end(&self, pool: &Pool, ids: &[MachineId]) -> Result<(), Error> {
        let (machines, pool, ids) = (Arc::clone(&self.machines), pool.clone(), ids.to_vec());
        joined(tokio::spawn(async move {
            machines.lock().await.end(&pool, &ids).await
        }))
        .await
    }
}

async fn joined<T>(call: tokio::task::JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    call.await
        .map_err(|error| away("the call did not end", error))?
}

// === impl Error ===

fn away(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Away {
        provider: PROVIDER,
        reason: format!("{what}: {error}"),
    }
}

fn refused(reason: String) -> Error {
    Error::Refused {
        provider: PROVIDER,
        reason,
    }
}
