//! What runs inside the server, each script at one moment.

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
    /// Makes a variant known.
    PUBLISH = ["prelude", "publish"];
    /// Forgets a variant.
    RETIRE = ["prelude", "retire"];
    /// What transitions need to know.
    READ = ["prelude", "read"];
    /// Compare-and-set of instances.
    WRITE = ["prelude", "write"];
    /// Renews a worker's lease.
    HEARTBEAT = ["prelude", "heartbeat"];
    /// Says that a worker is to leave.
    MARK_LEAVING = ["prelude", "mark_leaving"];
    /// Removes one worker.
    REMOVE_WORKER = ["prelude", "remove_worker"];
    /// Removes the workers whose lease has ended.
    EXPIRE = ["prelude", "expire"];
    /// Takes or renews a role.
    CAMPAIGN = ["prelude", "campaign"];
    /// Gives a role up.
    RESIGN = ["prelude", "resign"];
    /// Replaces what a leader says as a whole.
    RECORD = ["prelude", "record"];
    /// Content at one moment.
    SNAPSHOT = ["prelude", "snapshot"];
    /// Takes from a token bucket.
    TAKE = ["take"];
    /// Gives tokens back.
    GIVE_BACK = ["give_back"];
    /// Counts against a quota.
    SPEND = ["spend"];
}
