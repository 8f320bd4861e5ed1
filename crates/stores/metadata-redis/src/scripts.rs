//! The scripts that run inside the server, each atomically.

use std::sync::LazyLock;

use redis::Script;

/// A script, hashed once.
pub type Static = LazyLock<Script>;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = [$($file:literal),+];)*) => {
        $(
            $(#[$doc])*
            pub static $name: Static =
                LazyLock::new(|| Script::new(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+)));
        )*
    };
}

scripts! {
    /// The position of the last event.
    HEAD = ["prelude", "head"];
    /// Publishes a variant.
    PUBLISH = ["prelude", "publish"];
    /// Retires a variant.
    RETIRE = ["prelude", "retire"];
    /// Reads what transitions need.
    READ = ["prelude", "read"];
    /// Compare-and-set of instances.
    WRITE = ["prelude", "write"];
    /// Renews a worker's lease.
    HEARTBEAT = ["prelude", "heartbeat"];
    /// Marks a worker to leave.
    MARK_LEAVING = ["prelude", "mark_leaving"];
    /// Removes one worker.
    REMOVE_WORKER = ["prelude", "remove_worker"];
    /// Removes the workers whose lease has ended.
    EXPIRE = ["prelude", "expire"];
    /// Takes or renews a role.
    CAMPAIGN = ["prelude", "campaign"];
    /// Gives up a role.
    RESIGN = ["prelude", "resign"];
    /// Replaces a leader's record as a whole.
    RECORD = ["prelude", "record"];
    /// Reads the content at one moment.
    SNAPSHOT = ["prelude", "snapshot"];
    /// Takes from a token bucket.
    TAKE = ["take"];
    /// Gives tokens back.
    GIVE_BACK = ["give_back"];
    /// Counts against a quota.
    SPEND = ["spend"];
}
