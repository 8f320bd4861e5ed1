//! The contract of a metadata store, on Redis.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use redis::FromRedisValue;
use sextant_metadata::{
    Candidate, Changes, Cursor, Demand, DesiredState, Error, Instance, InstanceKey, Leader, Lease,
    MetadataStore, Snapshot, Transition, Worker, WorkerRecord,
};
use sextant_types::{Variant, VariantId, WorkerId};

use crate::{
    RedisConfig, RedisRates,
    connection::Connection,
    decode::{self, Content, document},
    feed::{self, Reader},
    record, scripts, transition,
};

/// Longest lease, ms: numbers in scripts are exact up to 2^53.
const LONGEST_LEASE_MS: u64 = 1 << 52;

/// Metadata in Redis, shared by all users of the same server and prefix.
pub struct RedisStore {
    connection: Connection,
    /// Watches the feed after the first wait; most writers never wait.
    reader: OnceLock<Reader>,
}

impl RedisStore {
    /// Connects. Fails if the server is away or too old, or refuses the user. Later losses of the
    /// connection are repaired automatically.
    pub async fn connect(config: RedisConfig) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            connection: Connection::open(&config).await?,
            reader: OnceLock::new(),
        }))
    }

    /// The time of the server's clock, ms since the Unix epoch.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn time_ms(&self) -> Result<u64, Error> {
        let told = self.connection.command(&redis::cmd("TIME")).await;
        let (seconds, micros): (u64, u64) = told?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// Rate limits in the same fleet's keys, over the same connection.
    pub fn rates(&self) -> RedisRates {
        RedisRates::over(self.connection.clone())
    }

    /// Content at one moment. `parts` names the parts as the script expects them.
    async fn content(&self, parts: &str, now_ms: u64) -> Result<(Snapshot, u64), Error> {
        let read = self
            .connection
            .script::<Content>(&scripts::SNAPSHOT, now_ms, |call| {
                call.arg(parts);
            });
        decode::snapshot(read.await?)
    }

    /// Runs a script that takes texts and returns a simple value, such as whether it changed
    /// anything.
    async fn run<T: FromRedisValue>(
        &self,
        script: &'static scripts::Static,
        now_ms: u64,
        arguments: &[&str],
    ) -> Result<T, Error> {
        let run = self.connection.script(script, now_ms, |call| {
            call.arg(arguments);
        });
        run.await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.connection.key("");
        f.debug_struct("RedisStore")
            .field("prefix", &prefix)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl MetadataStore for RedisStore {
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error> {
        let document = document(&*variant)?;
        let publish = self.connection.script(&scripts::PUBLISH, 0, |call| {
            call.arg(variant.id.as_str()).arg(document);
        });
        publish.await
    }

    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error> {
        self.run(&scripts::RETIRE, 0, &[variant.as_str()]).await
    }

    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error> {
        Ok(self.content("v", 0).await?.0.variants)
    }

    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error> {
        transition::one(&self.connection, transition, now_ms).await
    }

    async fn transitions(
        &self,
        transitions: &[Transition],
        now_ms: u64,
    ) -> Vec<Result<Instance, Error>> {
        transition::many(&self.connection, transitions, now_ms).await
    }

    async fn instances(&self) -> Result<Vec<Instance>, Error> {
        Ok(self.content("iw", 0).await?.0.instances)
    }

    async fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        transition::look(&self.connection, key).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error> {
        let document = document(&record)?;
        let ttl_ms = ttl_ms.min(LONGEST_LEASE_MS).to_string();
        let since_ms = record.since_ms.to_string();
        let arguments = [worker.as_str(), &document, &ttl_ms, &since_ms];
        let (until_ms, fresh, leaving) = self.run(&scripts::HEARTBEAT, now_ms, &arguments).await?;
        Ok(Lease {
            until_ms,
            fresh,
            leaving,
        })
    }

    async fn workers(&self, now_ms: u64) -> Result<Vec<Worker>, Error> {
        let (content, now_ms) = self.content("w", now_ms).await?;
        let mut workers = content.workers;
        workers.retain(|worker| worker.lease_until_ms > now_ms);
        Ok(workers)
    }

    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<Worker>, Error> {
        let arguments = [worker.as_str()];
        let known = self.run(&scripts::MARK_LEAVING, 0, &arguments).await?;
        let known: Option<(String, u64)> = known;
        let marked = known.map(|(record, lease_until_ms)| {
            let name = worker.to_string();
            decode::worker((name, record, lease_until_ms, Some("1".to_owned())))
        });
        marked.transpose()
    }

    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        let arguments = [worker.as_str()];
        self.run(&scripts::REMOVE_WORKER, 0, &arguments).await
    }

    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error> {
        let dead: Vec<String> = self.run(&scripts::EXPIRE, now_ms, &[]).await?;
        dead.iter().map(|name| decode::worker_id(name)).collect()
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error> {
        let document = document(candidate)?;
        let ttl_ms = ttl_ms.min(LONGEST_LEASE_MS).to_string();
        let arguments = [&candidate.role, &candidate.holder, &*document, &ttl_ms];
        let leader = self.run(&scripts::CAMPAIGN, now_ms, &arguments).await?;
        decode::leader(&leader)
    }

    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error> {
        let leaders = self.content("l", 0).await?.0.leaders;
        Ok(leaders.into_iter().find(|it| *it.candidate.role == *role))
    }

    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error> {
        let arguments: [&str; 2] = [&candidate.role, &candidate.holder];
        self.run(&scripts::RESIGN, 0, &arguments).await
    }

    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error> {
        record::set_desired(&self.connection, desired).await
    }

    async fn set_demand(&self, demand: Demand) -> Result<(), Error> {
        demand.check()?;
        record::set_demand(&self.connection, demand).await
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.content("viwlr", 0).await?.0)
    }

    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error> {
        feed::changes(&self.connection, cursor).await
    }

    async fn changed(&self, cursor: Cursor) -> Result<(), Error> {
        let reader = self.reader.get_or_init(|| Reader::start(&self.connection));
        reader.changed(&self.connection, cursor).await
    }
}
