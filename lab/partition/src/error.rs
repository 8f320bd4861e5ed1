//! Why there is no partition.

/// A limit that a partition must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Requests per second of a sub-cluster.
    Rate,
    /// Memory of a device.
    Memory,
    /// Cost of all loads and unloads.
    MoveCost,
}

/// Models that cannot be divided as desired.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nowhere to put a model.
    #[error("there are no sub-clusters: give one or more")]
    NoClusters,
    /// A number that means nothing: negative, not a number, or endless where it must not be.
    #[error("`{field}` of model {model} is `{value}`: it must be finite and not negative")]
    Model {
        /// The model, from 0.
        model: usize,
        /// The field.
        field: &'static str,
        /// What stands there.
        value: f64,
    },
    /// A limit or weight that is negative or not a number.
    #[error("`{field}` is `{value}`: it must not be negative")]
    Limits {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: f64,
    },
    /// A model is said to be in a sub-cluster that there is not.
    #[error(
        "model {model} is said to be in sub-cluster {cluster} of {clusters}: name one that stays, or none"
    )]
    NoSuchCluster {
        /// The model, from 0.
        model: usize,
        /// Where it is said to be.
        cluster: usize,
        /// How many there are.
        clusters: usize,
    },
    /// A model does not fit into a sub-cluster of its own.
    #[error(
        "model {model} alone needs `{need}` of `{most}` ({limit}): raise the limit or leave it out"
    )]
    ModelTooLarge {
        /// The model, from 0.
        model: usize,
        /// The limit that it exceeds.
        limit: Limit,
        /// What it needs, requests per second or bytes.
        need: f64,
        /// What the limit allows.
        most: f64,
    },
    /// All models together are more than all sub-clusters may have.
    #[error("all models need `{need}` of `{most}` ({limit}): raise the limit or add sub-clusters")]
    TooMuch {
        /// The limit.
        limit: Limit,
        /// What the models need: requests per second, bytes, or the cost of loads that must be.
        need: f64,
        /// What all sub-clusters allow.
        most: f64,
    },
    /// No partition keeps to all limits: the solver has proved it.
    #[error("no partition keeps to all limits, {limit} first of all: raise it or add sub-clusters")]
    Impossible {
        /// The limit that the best partition broke that was found.
        limit: Limit,
    },
    /// No partition that keeps to all limits was found, which does not mean that there is none.
    #[error(
        "found no partition that keeps to all limits, {limit} first of all: raise it, add sub-clusters or allow more work"
    )]
    NotFound {
        /// The limit that the best partition broke that was found.
        limit: Limit,
    },
}

// === impl Limit ===

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rate => "the rate of a sub-cluster",
            Self::Memory => "the memory of a device",
            Self::MoveCost => "the cost of moves",
        })
    }
}
