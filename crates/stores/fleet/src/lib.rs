//! How a role on one of many machines uses the metadata store: it leads or follows.
//!
//! Entry points: [`Leadership`] campaigns for a role that has one leader. [`Follower`] keeps a view of the store
//! current, also while the store is away and after it has lost its content.
//!
//! **Invariant:** nothing here decides about queries, variants or workers. A process believes to lead for no longer
//! than the lease that the store granted, by a monotonic clock. The exception is a role whose orders carry their token
//! to receivers that refuse a lesser one.

mod expiry;
mod follower;
mod leadership;

#[cfg(feature = "unsteady")]
pub mod unsteady;

/// The name in the store of the role whose leader gives orders to workers.
pub const LEADING_ROLE: &str = "dispatcher";

pub use expiry::{Leases, expire_leases};
pub use follower::{Follower, GRACE, News};
pub use leadership::{Leadership, Token, always, turned};
