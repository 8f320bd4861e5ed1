//! How often a step was begun and did not end.
//!
//! What takes the whole process down cannot say so. Each claim of the job that begins a step leaves a mark
//! before it does, and what was begun too often is not begun again. Measurements keep the mark as their own
//! result (`profile.rs`); the other steps that read what users bring keep it beside.

use serde::{Deserialize, Serialize};

use super::Registration;
use crate::{Error, step};

/// The mark.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Begun {
    /// In how many claims of the job.
    starts: u32,
    /// The latest of them, by its number among all claims.
    claim: u32,
}

impl Registration<'_> {
    /// Notes that a step is begun once more. Fails where it was begun too often already.
    pub(super) async fn count(&self, step: &str) -> Result<(), Error> {
        let (mark, claim) = (step::begun(step), self.claim_number());
        let before = self.stored.get(&mark).cloned();
        let before: Option<Begun> = before.and_then(|value| serde_json::from_value(value).ok());
        let starts = before.map_or(0, |before| {
            // Trying again within one claim is no sign of a process that ended.
            before
                .starts
                .saturating_sub(u32::from(before.claim == claim))
        });
        if starts >= self.parts.config.starts {
            return Err(Error::Interrupted { attempts: starts });
        }
        let starts = starts + 1;
        self.put(&mark, &Begun { starts, claim }).await
    }
}
