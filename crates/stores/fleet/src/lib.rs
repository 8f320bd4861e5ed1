//! What a role on one of many machines does with the metadata store: lead, or follow.
//!
//! Entry points: [`Leadership`] plays for a role that only one may play, [`Follower`] keeps a view of
//! the store current, through its absence and through the loss of its content.
//!
//! **Invariant:** nothing here decides about queries, variants or workers. Who believes to lead does
//! so for no longer than the lease that the store granted, by a clock that is never set, unless its
//! orders carry their token to those who refuse a lesser one.

mod expiry;
mod follower;
mod leadership;

#[cfg(feature = "unsteady")]
pub mod unsteady;

/// The role whose leader gives orders to workers, as the store calls it.
pub const LEADING_ROLE: &str = "dispatcher";

pub use expiry::{Leases, expire_leases};
pub use follower::{Follower, GRACE, News};
pub use leadership::{Leadership, Token, always, turned};
