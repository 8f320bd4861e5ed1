//! API keys: what each allows, and how often it may be used.
//!
//! A key is a random secret that only its holder has; the registry keeps a hash of it. Every front end holds all valid
//! keys in memory and follows the registry, so that no request waits for a database. All front ends refuse a revoked
//! key within two seconds; while the registry is unreachable, the known keys go on working.

use std::{net::SocketAddr, time::Duration};

mod actor;
mod caller;
mod charge;
mod keyring;
mod secret;

pub use actor::{Actor, AuditMark};
pub use caller::{Caller, not_its_own};
pub(crate) use charge::charge_further;
pub use charge::{HEADERS, Subject, charge};
pub use keyring::{Key, Keyring};
pub use secret::{AdminKey, Hash, Secret, WeakKey};

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Everybody may do everything.
    #[default]
    Off,
    /// Every request carries a key; health and documentation are open.
    Keys,
}

/// The configuration of keys.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Whether requests need a key.
    pub mode: Mode,
    /// A key with every right that is not in the registry, for making the first key.
    pub admin_key: Option<AdminKey>,
    /// Whether `/metrics` needs a key, too.
    pub metrics: bool,
    /// Most requests of one key in flight at one front end; `None`: no such limit.
    pub max_concurrent_per_key: Option<usize>,
    /// How long a caller that has changed something waits for an unreachable or full registry to accept the audit
    /// entry; `None`: a minute.
    pub audit_patience: Option<Duration>,
}

/// The service would be open to others, and the configuration does not ask for that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`listen` is `{listen}`, which others can reach, and `auth.mode` is not set: set \
     `auth.mode = \"keys\"`, or `auth.mode = \"off\"` to let everybody do everything"
)]
pub struct Unprotected {
    /// The address that the service would listen on.
    pub listen: SocketAddr,
}

/// The mode of a process: the configured mode, or by default `off` if it listens on the loopback interface alone.
pub fn check(listen: SocketAddr, mode: Option<Mode>) -> Result<Mode, Unprotected> {
    match mode {
        Some(mode) => Ok(mode),
        None if listen.ip().to_canonical().is_loopback() => Ok(Mode::Off),
        None => Err(Unprotected { listen }),
    }
}
