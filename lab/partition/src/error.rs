//! Errors of dividing models.

/// A limit on a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Requests per second of a sub-cluster.
    Rate,
    /// Memory of a device.
    Memory,
    /// Cost of all loads and unloads.
    MoveCost,
}

/// Why models cannot be divided.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no sub-cluster.
    #[error("there are no sub-clusters: give one or more")]
    NoClusters,
    /// An invalid number: negative, NaN, or infinite where it must be finite.
    #[error("`{field}` of model {model} is `{value}`: it must be finite and not negative")]
    Model {
        /// The model, from 0.
        model: usize,
        /// The field.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// A limit or weight that is negative or NaN.
    #[error("`{field}` is `{value}`: it must not be negative")]
    Limits {
        /// The field.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// A model names a sub-cluster that does not exist.
    #[error(
        "model {model} is said to be in sub-cluster {cluster} of {clusters}: name one that stays, or none"
    )]
    NoSuchCluster {
        /// The model, from 0.
        model: usize,
        /// The named sub-cluster.
        cluster: usize,
        /// The number of sub-clusters.
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
        /// The need of the model, requests per second or bytes.
        need: f64,
        /// The value of the limit.
        most: f64,
    },
    /// All models together exceed the limits of all sub-clusters.
    #[error("all models need `{need}` of `{most}` ({limit}): raise the limit or add sub-clusters")]
    TooMuch {
        /// The limit.
        limit: Limit,
        /// The need of the models: requests per second, bytes, or the cost of necessary loads.
        need: f64,
        /// What all sub-clusters together allow.
        most: f64,
    },
    /// No partition keeps all limits; the solver has proved it.
    #[error("no partition keeps to all limits, {limit} first of all: raise it or add sub-clusters")]
    Impossible {
        /// The limit that the best partition found breaks.
        limit: Limit,
    },
    /// No partition that keeps all limits was found, but there may be one.
    #[error(
        "found no partition that keeps to all limits, {limit} first of all: raise it, add sub-clusters or allow more work"
    )]
    NotFound {
        /// The limit that the best partition found breaks.
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
