//! Who makes a change that the audit record has, for changes that are made together with their entry.

use sextant_registry::Audit;

/// Who makes an audited change, and what it is called: an extension of the request.
#[derive(Debug, Clone)]
pub struct Actor {
    name: String,
    action: &'static str,
}

/// That the audit record has a change already, made with it: an extension of the response.
#[derive(Debug, Clone, Copy)]
pub struct AuditMark;

// === impl Actor ===

impl Actor {
    /// A caller's name, and what the audit record calls the change.
    pub fn new(name: &str, action: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            action,
        }
    }

    /// The entry of the audit record, for a change that is made with it.
    pub fn entry(&self, at_ms: u64, subject: &str, detail: serde_json::Value) -> Audit {
        Audit::new(at_ms, &self.name, self.action, subject, detail)
    }
}
