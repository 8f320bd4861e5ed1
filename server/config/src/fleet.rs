//! Where the state is kept that the processes of a fleet share, and how they reach each other.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::section::section;

const ANY: f64 = f64::INFINITY;

section! {
    /// The metadata store: which process runs what, with instances, leases and leaders.
    Metadata in "metadata" {
        /// A Redis or Valkey server, `redis://[user:password@]host[:port][/database]`; `rediss://`
        /// for TLS.
        url: Option<String> = None, unset "this process's memory";
        /// Longest time of a call to the metadata store, milliseconds; if a call takes longer, the store counts as
        /// unreachable.
        timeout_ms: u64 = 2000, within 10.0..=60_000.0;
        /// Number of changes that are kept for processes that lag behind.
        history: u64 = 65_536, within 16.0..=1e9;
    }
}

section! {
    /// The registry: applications, models, variants, jobs and keys.
    Registry in "registry" {
        /// A PostgreSQL server, `postgres://[user:password@]host[:port]/database`.
        url: Option<String> = None, unset "a SQLite file in the data folder";
        /// Most connections of this process to the registry.
        connections: u32 = 8, within 1.0..=1000.0;
    }
}

section! {
    /// The artefact store: models, validation sets, inputs and outputs of jobs.
    Objects in "objects" {
        /// A bucket, `s3://bucket[/prefix]`. Credentials come from the environment
        /// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`) or a profile. Or a folder that another process
        /// of this machine keeps, `file:///folder`.
        url: Option<String> = None, unset "a folder in the data folder";
        /// Address of the bucket's server, `http[s]://host[:port]`, for a server that speaks S3 and is not AWS.
        endpoint: Option<String> = None, unset "the region's";
        /// The bucket's region.
        region: Option<String> = None, unset "`AWS_REGION`, the profile's, then `us-east-1`";
        /// Whether the bucket's name is in the path of addresses and not in the host name.
        path_style: Option<bool> = None, unset "yes where `objects.endpoint` is set";
        /// Bytes of models that a worker keeps in its data folder instead of fetching them again.
        cache_bytes: u64 = 16 << 30, within 1_048_576.0..=ANY;
    }
}

section! {
    /// The processes of the fleet, and how they reach each other.
    Fleet in "fleet" {
        /// Name of the fleet: the prefix of its keys in the metadata store. Processes of different
        /// fleets do not talk to each other.
        name: String = "sextant".to_owned();
        /// Newest version of the messages between processes that this process speaks; 3 is the version of the release
        /// before. Processes that understand both versions talk to either, so upgrading a fleet process by process
        /// does not need this setting.
        protocol: u16 = 4, within 3.0..=4.0;
        /// Address and port at which the other processes reach this one (gRPC); port 0 takes a free one. The roles
        /// `dispatcher` and `worker` need it if other processes have the other roles.
        listen: Option<SocketAddr> = None, unset "no other process reaches this one";
        /// Most connections to `fleet.listen`; further ones wait. The process closes a connection on which no process
        /// of the fleet calls within ten seconds.
        max_connections: usize = 1024, within 8.0..=65_536.0;
        /// `host:port` under which the other processes reach this one.
        advertise: Option<String> = None, unset "`fleet.listen`, with this machine's name where that is not a single address";
        /// Certificate of this process, PEM. With it, `fleet.key` and `fleet.ca`, every connection between processes
        /// is encrypted and both ends prove who they are.
        certificate: Option<PathBuf> = None, unset "connections between processes are not encrypted";
        /// Key of the certificate, PEM.
        key: Option<PathBuf> = None, unset "none";
        /// Certificates against which those of the other processes are checked, PEM.
        ca: Option<PathBuf> = None, unset "none";
        /// The name in the certificates of the other processes, if it is not the host of their addresses.
        server_name: Option<String> = None, unset "the host of each address";
        /// Whether the certificates of processes must name their roles: `dispatcher.sextant` to send batches and give
        /// orders, `api.sextant` to ask queries. A certificate that has one of these names allows only that role in
        /// any case.
        role_names: bool = false;
        /// How long a process that starts waits for stores that it cannot reach, milliseconds; then it ends.
        start_patience_ms: u64 = 10_000, within 0.0..=86_400_000.0;
        /// Silence after which a process counts as lost, milliseconds.
        silence_ms: u64 = 1000, within 100.0..=60_000.0;
        /// Time without renewal after which another process takes over as the leading dispatcher or autoscaler,
        /// milliseconds.
        leader_lease_ms: u64 = 1500, within 200.0..=60_000.0;
        /// Time without a heartbeat after which a worker and its instances are forgotten, milliseconds.
        worker_lease_ms: u64 = 10_000, within 500.0..=600_000.0;
        /// Expected time of a message between two processes, microseconds: batches that wait for more queries leave
        /// this time free before their deadline.
        network_us: u64 = 200, within 0.0..=1_000_000.0;
        /// Longest wait of a query without a latency target, milliseconds.
        query_limit_ms: u64 = 60_000, within 100.0..=86_400_000.0;
        /// Largest inputs and largest outputs, bytes each, of a query that travels through the dispatcher. The
        /// tensors of a larger query go directly between the front end and the worker.
        inline_bytes: u64 = 8_192, within 0.0..=16_777_216.0;
    }
}

section! {
    /// Authentication: who may use the service.
    Auth in "auth" {
        /// `keys`: every request needs an API key. `off`: everybody may do everything. If the HTTP API listens beyond
        /// this machine, `off` must be set explicitly.
        mode: Option<AuthMode> = None, unset "`off` on the loopback interface, else an error";
        /// A key with every right, with which to create the first key; best set in the environment.
        admin_key: Option<String> = None, unset "none";
        /// Most requests of one key in flight at one process; 0 sets no such limit.
        max_concurrent_per_key: Option<usize> = None,
            unset "a quarter of `limits.max_concurrent_queries`", within 0.0..=ANY;
        /// Whether `/metrics` needs a key too.
        metrics: bool = false;
    }
}

section! {
    /// Encryption of the HTTP API.
    Tls in "tls" {
        /// Certificate chain, PEM; the service reads it again when it changes.
        certificate: Option<PathBuf> = None, unset "the HTTP API is not encrypted";
        /// Key of the certificate, PEM.
        key: Option<PathBuf> = None, unset "none";
        /// Certificates against which those of clients are checked, PEM.
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
