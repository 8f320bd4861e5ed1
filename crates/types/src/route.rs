//! Addresses of queries.

use serde::{Deserialize, Serialize};

use crate::{ApplicationId, ModelId, VariantId};

/// What a query addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Model-less: any variant of any model of the application.
    Application(ApplicationId),
    /// Any variant of one model.
    Model(ModelId),
    /// This variant and no other; targets other than latency are ignored.
    Variant(VariantId),
}

impl Route {
    /// The name of what it addresses.
    pub fn name(&self) -> &str {
        match self {
            Self::Application(id) => id.as_str(),
            Self::Model(id) => id.as_str(),
            Self::Variant(id) => id.as_str(),
        }
    }
}
