//! The roles that a process can play.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// One part of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// HTTP.
    Api,
    /// A query's way through choice, queue and batch.
    Dispatcher,
    /// How many instances of which variant.
    Autoscaler,
    /// Registration: generates and measures variants.
    VariantGen,
    /// Runs batches.
    Worker,
}

/// The roles of this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Roles(pub BTreeSet<Role>);

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [
        Self::Api,
        Self::Dispatcher,
        Self::Autoscaler,
        Self::VariantGen,
        Self::Worker,
    ];

    /// Their names, in the order of [`Role::ALL`].
    pub const NAMES: &'static [&'static str] =
        &["api", "dispatcher", "autoscaler", "variant-gen", "worker"];

    /// `api`, `variant-gen`, ..
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Roles {
    /// Whether this process plays `role`.
    pub fn contains(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl Default for Roles {
    fn default() -> Self {
        Self(Role::ALL.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialised_names_are_the_listed_names() {
        for role in Role::ALL {
            let text = toml::Value::try_from(role).expect("a role is a string");
            assert_eq!(text.as_str(), Some(role.name()));
        }
    }
}
