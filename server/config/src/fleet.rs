//! Where the state is kept that the processes of a fleet share, and how they reach each other.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::section::section;

const ANY: f64 = f64::INFINITY;

section! {
    /// Who runs what: instances, leases, leaders.
    Metadata in "metadata" {
        /// A Redis or Valkey server, `redis://[user:password@]host[:port][/database]`; `rediss://`
        /// for TLS.
        url: Option<String> = None, unset "this process's memory";
        /// Longest time of a call, milliseconds; beyond it the store counts as away.
        timeout_ms: u64 = 2000, within 10.0..=60_000.0;
        /// Changes that are kept for those who lag behind.
        history: u64 = 65_536, within 16.0..=1e9;
    }
}

section! {
    /// Applications, models, variants, jobs and keys.
    Registry in "registry" {
        /// A PostgreSQL server, `postgres://[user:password@]host[:port]/database`.
        url: Option<String> = None, unset "a SQLite file in the data folder";
        /// Most connections of this process.
        connections: u32 = 8, within 1.0..=1000.0;
    }
}

section! {
    /// Models, validation sets, inputs and outputs of jobs.
    Objects in "objects" {
        /// A bucket, `s3://bucket[/prefix]`. Credentials come from the environment
        /// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`) or a profile. Or a folder that another process
        /// of this machine keeps, `file:///folder`.
        url: Option<String> = None, unset "a folder in the data folder";
        /// Where the bucket is, `http[s]://host[:port]`, for what speaks S3 and is not AWS.
        endpoint: Option<String> = None, unset "the region's";
        /// The bucket's region.
        region: Option<String> = None, unset "`AWS_REGION`, the profile's, then `us-east-1`";
        /// Whether the bucket stands in the path and not in the host name.
        path_style: Option<bool> = None, unset "yes where `objects.endpoint` is set";
        /// Bytes of models that a worker keeps in its data folder instead of fetching them again.
        cache_bytes: u64 = 16 << 30, within 1_048_576.0..=ANY;
    }
}

section! {
    /// The processes that work together, and how they reach each other.
    Fleet in "fleet" {
        /// Name of the fleet: the prefix of its keys in the metadata store. Processes of different
        /// fleets do not talk to each other.
        name: String = "sextant".to_owned();
        /// Newest version of the messages between processes that this one speaks: 3 speaks as the release before. Processes
        /// that understand both talk to either, so a fleet is upgraded process by process without it.
        protocol: u16 = 4, within 3.0..=4.0;
        /// Address and port for the other processes (gRPC); port 0 takes a free one. Needed by the
        /// roles `dispatcher` and `worker` where others play the other roles.
        listen: Option<SocketAddr> = None, unset "no other process reaches this one";
        /// Most connections to it; further ones wait. One on which no process of the fleet calls within ten seconds is closed.
        max_connections: usize = 1024, within 8.0..=65_536.0;
        /// `host:port` under which the others reach it.
        advertise: Option<String> = None, unset "`fleet.listen`, with this machine's name where that is not a single address";
        /// Certificate of this process, PEM; with `fleet.key` and `fleet.ca` every connection between
        /// processes is encrypted and both ends prove who they are.
        certificate: Option<PathBuf> = None, unset "connections between processes are not encrypted";
        /// Key of the certificate, PEM.
        key: Option<PathBuf> = None, unset "none";
        /// Certificates that those of the others are checked against, PEM.
        ca: Option<PathBuf> = None, unset "none";
        /// The name that the others' certificates have, where it is not that of their addresses.
        server_name: Option<String> = None, unset "the host of each address";
        /// Whether the certificates of processes must name their roles: `dispatcher.sextant` to send batches
        /// and give orders, `api.sextant` to ask queries. A certificate with one of these names is held to
        /// it in any case.
        role_names: bool = false;
        /// How long a process that starts waits for stores that are away, milliseconds; then it ends.
        start_patience_ms: u64 = 10_000, within 0.0..=86_400_000.0;
        /// A process that says nothing for so long is lost, milliseconds.
        silence_ms: u64 = 1000, within 100.0..=60_000.0;
        /// Without renewal for so long another takes over as the leading dispatcher or autoscaler,
        /// milliseconds.
        leader_lease_ms: u64 = 1500, within 200.0..=60_000.0;
        /// Without a heartbeat for so long a worker and its instances are forgotten, milliseconds.
        worker_lease_ms: u64 = 10_000, within 500.0..=600_000.0;
        /// Time that a message between two processes is expected to take, microseconds: batches that
        /// wait for company leave it free before their deadline.
        network_us: u64 = 200, within 0.0..=1_000_000.0;
        /// Longest wait of a query without a latency target, milliseconds.
        query_limit_ms: u64 = 60_000, within 100.0..=86_400_000.0;
        /// A query whose inputs and outputs take no more bytes each travels through the dispatcher; the
        /// tensors of a larger one go straight between the front end and the worker.
        inline_bytes: u64 = 8_192, within 0.0..=16_777_216.0;
    }
}

section! {
    /// Who may ask.
    Auth in "auth" {
        /// `keys`: every request carries an API key. `off`: everybody may do everything. Where the
        /// HTTP API listens beyond this machine, `off` must be said.
        mode: Option<AuthMode> = None, unset "`off` on the loopback interface, else an error";
        /// A key with every right, for making the first one; best set in the environment.
        admin_key: Option<String> = None, unset "none";
        /// Most requests of one key in flight at one process; 0 sets no such limit.
        max_concurrent_per_key: Option<usize> = None,
            unset "a quarter of `limits.max_concurrent_queries`", within 0.0..=ANY;
        /// Whether `/metrics` asks for a key, too.
        metrics: bool = false;
    }
}

section! {
    /// Encryption of the HTTP API.
    Tls in "tls" {
        /// Certificate chain, PEM; read again when it changes.
        certificate: Option<PathBuf> = None, unset "the HTTP API is not encrypted";
        /// Its key, PEM.
        key: Option<PathBuf> = None, unset "none";
        /// Certificates that those of clients are checked against, PEM.
        client_ca: Option<PathBuf> = None, unset "clients need no certificate";
    }
}

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// They do not.
    Off,
    /// They do.
    Keys,
}

impl AuthMode {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["off", "keys"];
}
