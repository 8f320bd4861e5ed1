//! File descriptors: the process takes as many as the system allows, and reserves a part for things other than
//! connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The part of all descriptors that is left to files, stores, engines and the other processes of a fleet.
const RESERVED_PART: u64 = 8;

/// As many are left in any case: a process without a connection has about 40 open.
const LEAST_RESERVED: u64 = 64;

/// Raises the limit of this process to what the system allows it. Service managers set a low one (systemd:
/// 1,024) for the sake of programs that cannot do with more.
pub(super) fn raise() {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: found.maximum,
        maximum: found.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of file descriptors stays as it is");
    }
}

/// Descriptors that this process may open.
fn limit() -> u64 {
    // `None`: there is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Most connections of the HTTP API: what is configured, as far as descriptors allow it.
pub(super) fn max_connections(configured: usize) -> usize {
    let allowed = allowed(limit());
    if configured > allowed {
        tracing::warn!(
            configured,
            allowed,
            "the limit of file descriptors allows fewer connections than `limits.max_connections`"
        );
    }
    configured.min(allowed)
}

fn allowed(descriptors: u64) -> usize {
    let reserved = (descriptors / RESERVED_PART).max(LEAST_RESERVED);
    let allowed = descriptors.saturating_sub(reserved);
    usize::try_from(allowed).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        assert_eq!(allowed(1024), 896);
        assert_eq!(allowed(256), 192);
        assert_eq!(allowed(0), 1);
        assert_eq!(max_connections(1), 1);
        assert!(max_connections(usize::MAX) <= allowed(limit()));
    }

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        raise();
        assert_eq!(limit(), most);
    }
}
