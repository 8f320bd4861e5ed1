//! The measured processes of a fleet.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use sextant_test_servers::{postgres::Postgres, redis::Redis, s3::S3};

use crate::bench::bed::Bench;
use crate::server::Server;

/// Settings of both services: one batch at a time on one thread, and variants of one engine.
const SETTINGS: [&str; 5] = [
    "worker.cores=1",
    "variants.engines=ort",
    "variants.max_threads=1",
    "variants.max_batch=32",
    "variants.profile_ms_per_batch=20",
];

/// Real stores and the processes over them.
pub struct Fleet {
    // The processes end before their stores.
    members: BTreeMap<&'static str, Server>,
    redis: Redis,
    postgres: Postgres,
    s3: S3,
}

/// All roles in one process over embedded stores.
pub fn alone(bench: &Bench<'_>) -> Result<Server> {
    bench.sextant("alone", &SETTINGS)
}

impl Fleet {
    /// One process for each role except the worker.
    pub fn start(bench: &Bench<'_>) -> Result<Self> {
        let mut fleet = Self {
            redis: Redis::start(),
            postgres: Postgres::start(),
            s3: S3::start(),
            members: BTreeMap::new(),
        };
        for role in ["dispatcher", "autoscaler", "variant-gen", "api"] {
            fleet.spawn(bench, role, role)?;
        }
        Ok(fleet)
    }

    /// Adds a process.
    pub fn spawn(&mut self, bench: &Bench<'_>, name: &'static str, role: &str) -> Result<()> {
        self.spawn_at(bench, name, role, (None, &[]))
    }

    /// Tells a process to end, waits until it has ended, and starts it again at the same address with more settings.
    pub fn restart(
        &mut self,
        bench: &Bench<'_>,
        name: &'static str,
        role: &str,
        settings: &[&str],
    ) -> Result<()> {
        let server = self.members.remove(name);
        let address = server.with_context(|| format!("`{name}` runs"))?.address;
        self.spawn_at(bench, name, role, (Some(address), settings))
    }

    /// Adds a process with more settings at an address, or at a free one.
    pub fn spawn_at(
        &mut self,
        bench: &Bench<'_>,
        name: &'static str,
        role: &str,
        (at, settings): (Option<SocketAddr>, &[&str]),
    ) -> Result<()> {
        let own = [
            format!("worker.name={name}"),
            "fleet.listen=127.0.0.1:0".to_owned(),
            format!("metadata.url={}", self.redis.url()),
            format!("registry.url={}", self.postgres.url()),
            format!("objects.url=s3://{}", self.s3.bucket()),
            format!("objects.endpoint={}", self.s3.endpoint()),
        ];
        let own = own.iter().map(String::as_str);
        let more = settings.iter().copied();
        let settings: Vec<&str> = SETTINGS.into_iter().chain(own).chain(more).collect();
        let (mut command, address) = bench.command_at(at, name, &settings)?;
        command
            .args(["--role", role])
            .env("AWS_ACCESS_KEY_ID", self.s3.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.s3.secret_key());
        let server = Server::start(name, command, address, "/health/live")?;
        self.members.insert(name, server);
        Ok(())
    }

    /// The process of this name.
    pub fn member(&self, name: &str) -> Result<&Server> {
        let server = self.members.get(name);
        server.with_context(|| format!("`{name}` runs"))
    }

    /// The front end.
    pub fn api(&self) -> Result<&Server> {
        self.member("api")
    }

    /// Ends a process as a power cut would.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let server = self.members.remove(name);
        server.with_context(|| format!("`{name}` runs"))?.kill()
    }
}
