//! The caller: who sent a request.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use sextant_registry::KeyScope;
use sextant_types::{ApplicationId, Code};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    charge::{charge, take_place},
    keyring::Key,
};
use crate::{ApiState, problem::Problem};

/// Who sent a request, and what they may do.
#[derive(Clone)]
pub enum Caller {
    /// No keys are asked for.
    Anyone,
    /// The administrator's key of the configuration.
    Administrator,
    /// A key of the registry.
    Key(Arc<Key>),
}

// === impl Caller ===

impl Caller {
    /// The name in the audit record.
    pub fn name(&self) -> &str {
        match self {
            Self::Anyone => "anonymous",
            Self::Administrator => "administrator",
            Self::Key(key) => &key.id,
        }
    }

    /// The one application that the caller is bound to.
    pub fn application(&self) -> Option<&ApplicationId> {
        match self {
            Self::Key(key) => key.application.as_ref(),
            Self::Anyone | Self::Administrator => None,
        }
    }

    /// Whether the caller has a scope; `admin` has them all.
    pub fn has(&self, scope: KeyScope) -> bool {
        match self {
            Self::Key(key) => key
                .scopes
                .iter()
                .any(|own| [scope, KeyScope::Admin].contains(own)),
            Self::Anyone | Self::Administrator => true,
        }
    }

    /// Whether the caller may see what belongs to `application`.
    pub fn sees(&self, application: &ApplicationId) -> bool {
        self.application().is_none_or(|own| own == application)
    }

    /// Counts one more request of a call that goes on, and takes a place for it: the guard has checked only the first.
    pub async fn charge(&self, state: &ApiState) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        match self.known_key(state)? {
            Some(key) => charge(key, &mut HeaderMap::new()).await,
            None => Ok(None),
        }
    }

    /// Takes a place for the first request of such a call, which the guard has counted with the call.
    pub fn take_place(&self, state: &ApiState) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        match self.known_key(state)? {
            Some(key) => take_place(key),
            None => Ok(None),
        }
    }

    /// The key of the caller, which must still be valid.
    fn known_key(&self, state: &ApiState) -> Result<Option<&Key>, Problem> {
        let Self::Key(key) = self else {
            return Ok(None);
        };
        if !state.still_knows(self) {
            let detail = "the API key was revoked or has expired";
            return Err(Problem::new(Code::Unauthenticated, detail));
        }
        Ok(Some(key.as_ref()))
    }

    /// Refuses what belongs to another application than the caller's.
    pub fn check(&self, application: &ApplicationId) -> Result<(), Problem> {
        match self.application() {
            Some(own) if own != application => Err(not_its_own(own)),
            _ => Ok(()),
        }
    }
}

/// The refusal of what a bound key may not see.
pub fn not_its_own(own: &ApplicationId) -> Problem {
    let detail = format!("the key is bound to application `{own}`: this belongs to no such");
    Problem::new(Code::Forbidden, detail)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // A request that did not pass the guard has no caller, and is refused.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::new(Code::Unauthenticated, "nobody asked who you are"))
    }
}
