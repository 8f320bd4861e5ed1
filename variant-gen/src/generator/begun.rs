//! Counts how often a step was begun and did not end.
//!
//! A step that takes the whole process down cannot report it. So each claim of the job leaves a mark before it begins a
//! step, and a step that was begun too often is not begun again. Measurements keep the mark as their own result
//! (`profile.rs`); the other steps that read users' files keep it beside their result.
//!
//! If engines are isolated, a bad file ends another process, and this one ends for other reasons. A mark is then left
//! only if the step makes this process grow by much, so that the system may have killed it for lack of memory.
//!
//! A claim that is given back, because others wait or the process ends, says nothing about the step: its marks are
//! removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_registry::Step;
use tokio::task::AbortHandle;

use super::{Generator, Registration, extend::claim_number};
use crate::{Claim, Error, memory, step};

/// Growth above which a step may be the reason why this process ended.
const SUSPICIOUS_BYTES: u64 = 256 << 20;

/// Time between two checks of the memory.
const LOOK: Duration = Duration::from_millis(50);

/// The mark.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct StartMark {
    /// Number of claims of the job that began the step.
    starts: u32,
    /// The latest of them, by its number among all claims.
    claim: u32,
}

/// Watches this process while a step runs.
pub(super) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Generator {
    /// Removes the marks of a claim that is given back.
    pub(crate) async fn forget_starts(&self, claim: &Claim) -> Result<(), Error> {
        let (registry, job) = (self.registry(), &claim.job);
        let Some(model) = &job.model else {
            return Ok(());
        };
        let number = claim_number(claim, self.config());
        for noted in registry.steps(model).await? {
            if let Some(before) = before(&noted, number) {
                let put = registry.put_step_held(&job.id, &claim.owner, &noted.name, &before);
                put.await?;
            }
        }
        Ok(())
    }
}

/// The mark as it was before this claim; `None` if this claim left no mark.
fn before(noted: &Step, claim: u32) -> Option<Value> {
    let is_mark = noted.name.starts_with(&step::begun("")) || noted.result["outcome"] == "begun";
    let begun: StartMark = serde_json::from_value(noted.result.clone()).ok()?;
    if !is_mark || begun.claim != claim {
        return None;
    }
    let mut before = noted.result.clone();
    before["starts"] = begun.starts.saturating_sub(1).into();
    Some(before)
}

impl Registration<'_> {
    /// Counts one more beginning of a step. Fails if the step was begun too often already.
    pub(super) async fn count(&mut self, step: &str) -> Result<(), Error> {
        let (mark, claim) = (step::begun(step), self.claim_number());
        let before = self.stored.get(&mark).cloned();
        let before: Option<StartMark> = before.and_then(|value| serde_json::from_value(value).ok());
        let starts = before.map_or(0, |before| {
            // A retry within one claim does not mean that the process ended.
            before
                .starts
                .saturating_sub(u32::from(before.claim == claim))
        });
        if starts >= self.parts.config.starts {
            return Err(Error::Interrupted { attempts: starts });
        }
        let begun = StartMark {
            starts: starts + 1,
            claim,
        };
        match self.parts.config.isolation {
            None => self.put(&mark, &begun).await,
            Some(_) => {
                self.watch = Some(self.watch(mark, begun));
                Ok(())
            }
        }
    }

    /// Leaves the mark once this process has grown.
    fn watch(&self, mark: String, begun: StartMark) -> Watch {
        let registry = self.parts.registry.clone();
        let (job, owner) = (self.claim.job.id.clone(), self.claim.owner.clone());
        let before = memory::resident().unwrap_or(u64::MAX);
        let watching = tokio::spawn(async move {
            let grown = || {
                memory::resident()
                    .unwrap_or_default()
                    .saturating_sub(before)
            };
            while grown() < SUSPICIOUS_BYTES {
                tokio::time::sleep(LOOK).await;
            }
            let Ok(begun) = serde_json::to_value(begun) else {
                return;
            };
            let noted = registry.put_step_held(&job, &owner, &mark, &begun).await;
            if let Err(error) = noted {
                tracing::warn!(%job, mark, %error, "a step that takes much memory cannot be noted");
            }
        });
        Watch(watching.abort_handle())
    }
}
