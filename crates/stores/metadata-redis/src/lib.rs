//! The metadata store and the rate limits on Redis 7 or Valkey, for a fleet of machines.
//!
//! Entry points: [`RedisStore`], [`RedisRates`], both made from a [`RedisConfig`].
//!
//! All keys of a fleet begin with its name as a hash tag, `{sextant}:`. So a cluster keeps them in one slot, and a
//! script may use them together:
//!
//! | key | what |
//! |---|---|
//! | `state` | hash: position of the last event, life, greatest version of removed records |
//! | `feed` | stream of changes; its ids are the positions |
//! | `variants`, `variant:ID` | set of names; hash with the variant's document |
//! | `instances`, `instance:VARIANT@WORKER` | set of names; hash with the fields of its record |
//! | `workers`, `worker:ID`, `worker:ID:instances` | sorted set by the lease's end; hash; set |
//! | `leaders`, `leader:ROLE` | set of roles; hash with holder, token and lease |
//! | `wanted`, `demand` | hash of content, token of its writer, greatest token seen, position of its event |
//! | `bucket:NAME`, `quota:NAME` | hashes of [`RedisRates`] |
//!
//! A transition is read, decided by [`sextant_metadata::carry_out`] in this process, and written by a script. The
//! script checks that nothing on which the decision rests has changed; if something has, the transition is read again.
//!
//! **Invariant:** neither this crate nor a script decides anything except whether what was read still holds. No call
//! hangs: if the server is away or stopped, the call fails with [`sextant_metadata::Error::Unavailable`] within the
//! configured time. No error text contains the URL's password.

mod config;
mod connection;
mod decode;
mod feed;
mod rates;
mod record;
mod scripts;
mod store;
mod transition;

pub use config::{Clock, DEFAULT_HISTORY, DEFAULT_TIMEOUT, RedisConfig};
pub use rates::RedisRates;
pub use store::RedisStore;
