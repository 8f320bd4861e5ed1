//! Who may ask: API keys, what each allows, and how often.
//!
//! A key is a random secret that only its holder has; the registry keeps a hash of it. Every front
//! end holds all valid keys in memory and follows the registry, so that no request waits for a
//! database: a key that is revoked is refused by all within two seconds, and while the registry is
//! away the keys that were known go on working. What an operation needs is said in one table
//! (`rules`), which a test compares with the described routes.

use std::{net::SocketAddr, time::Duration};

mod caller;
mod guard;
mod keyring;
mod repeated;
mod rules;
mod secret;

pub(crate) use caller::Caller;
pub(crate) use guard::{Actor, Guard, HEADERS, Recorded, Subject, charge_further, guard, identify};
pub(crate) use keyring::Keyring;
pub(crate) use rules::{RuleBook, describe, described};
pub(crate) use secret::Secret;
pub use secret::{AdminKey, WeakKey};

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Everybody may do everything.
    #[default]
    Off,
    /// Every request carries a key; health and documentation are open.
    Keys,
}

/// How requests are let in.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Whether requests need a key.
    pub mode: Mode,
    /// A key with every right that stands in no registry, for making the first one.
    pub admin_key: Option<AdminKey>,
    /// Whether `/metrics` asks for a key, too.
    pub metrics: bool,
    /// Most requests of one key in flight at one front end; `None`: no such limit.
    pub max_concurrent_per_key: Option<usize>,
    /// How long who has changed something waits for a registry that is away or full to take the entry of the audit
    /// record; `None`: a minute.
    pub audit_patience: Option<Duration>,
}

/// The service would be open to others without anyone having said so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`listen` is `{listen}`, which others can reach, and `auth.mode` is not set: set \
     `auth.mode = \"keys\"`, or `auth.mode = \"off\"` to let everybody do everything"
)]
pub struct Unprotected {
    /// Where the service would listen.
    pub listen: SocketAddr,
}

/// The mode that a process runs in: what is configured, and `off` by default on the loopback
/// interface alone.
pub fn check(listen: SocketAddr, mode: Option<Mode>) -> Result<Mode, Unprotected> {
    match mode {
        Some(mode) => Ok(mode),
        None if listen.ip().to_canonical().is_loopback() => Ok(Mode::Off),
        None => Err(Unprotected { listen }),
    }
}
