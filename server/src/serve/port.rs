//! How the processes of a fleet reach each other.

use sextant_fleet::Token;
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;

use super::{Process, stores::Stores};

#[cfg(not(feature = "fleet"))]
mod absent;
#[cfg(feature = "fleet")]
mod grpc;

#[cfg(not(feature = "fleet"))]
pub(super) use absent::Port;
#[cfg(feature = "fleet")]
pub(super) use grpc::Port;

/// On whose behalf links are opened.
#[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "there is no port"))]
pub(super) enum Caller {
    /// A front end, which gives no orders.
    FrontEnd,
    /// A dispatcher, which gives orders while it has a token.
    Dispatcher(Token),
}

/// What is seen of a worker of the fleet.
#[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "there is no port"))]
pub(super) enum WorkerEvent {
    /// It can be reached; a later client replaces an earlier one.
    Up(WorkerId, WorkerClient),
    /// It cannot be reached any more.
    Down(WorkerId),
}
