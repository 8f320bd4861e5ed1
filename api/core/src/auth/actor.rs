//! The actor of an audited change, for changes that are made together with their audit entry.

use sextant_registry::Audit;

/// The caller that makes an audited change, and the change's name: an extension of the request.
#[derive(Debug, Clone)]
pub struct Actor {
    name: String,
    action: &'static str,
}

/// Marks a change whose audit entry was made with it: an extension of the response.
#[derive(Debug, Clone, Copy)]
pub struct AuditMark;

// === impl Actor ===

impl Actor {
    /// An actor with a caller's name and the audit record's name of the change.
    pub fn new(name: &str, action: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            action,
        }
    }

    /// The audit entry for a change that is made with it.
    pub fn entry(&self, at_ms: u64, subject: &str, detail: serde_json::Value) -> Audit {
        Audit::new(at_ms, &self.name, self.action, subject, detail)
    }
}
