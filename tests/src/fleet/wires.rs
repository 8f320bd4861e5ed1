//! The wires of one process, which can be disturbed without affecting other processes.

use serde::{Deserialize, Serialize};
use sextant_test_servers::process::free_port;

use super::{Fleet, port_of};
use crate::wire::Wire;

/// The other end of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The metadata store.
    Redis,
    /// The registry.
    Postgres,
    /// The artefact store.
    S3,
    /// The processes that reach it.
    Others,
}

/// Wires to the stores, and from the other processes.
#[derive(Debug)]
pub(super) struct Wires {
    redis: Wire,
    postgres: Wire,
    s3: Wire,
    others: Wire,
    /// The port on which the process listens for the others.
    port: u16,
}

impl End {
    /// All ends.
    pub const ALL: [Self; 4] = [Self::Redis, Self::Postgres, Self::S3, Self::Others];
}

impl Wires {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let port = free_port();
        Self {
            redis: Wire::to(fleet.redis.port()),
            postgres: Wire::to(fleet.postgres.port()),
            s3: Wire::to(port_of(&fleet.s3.endpoint()).1),
            others: Wire::to(port),
            port,
        }
    }

    pub(super) fn end(&self, end: End) -> &Wire {
        match end {
            End::Redis => &self.redis,
            End::Postgres => &self.postgres,
            End::S3 => &self.s3,
            End::Others => &self.others,
        }
    }

    /// The addresses of the stores for the process: Redis, PostgreSQL, S3.
    pub(super) fn stores(&self, urls: [String; 3]) -> [String; 3] {
        let [redis, postgres, s3] = urls;
        let through =
            |url: &str, wire: &Wire| port_of(url).0.replace("PORT", &wire.port().to_string());
        [
            through(&redis, &self.redis),
            through(&postgres, &self.postgres),
            through(&s3, &self.s3),
        ]
    }

    /// The settings with the address on which the process listens, and the address for the others.
    pub(super) fn settings(&self) -> [String; 2] {
        [
            format!("fleet.listen=127.0.0.1:{}", self.port),
            format!("fleet.advertise=127.0.0.1:{}", self.others.port()),
        ]
    }
}
