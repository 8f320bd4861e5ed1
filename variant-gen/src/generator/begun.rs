//! How often a step was begun and did not end.
//!
//! What takes the whole process down cannot say so. Each claim of the job that begins a step leaves a mark
//! before it does, and what was begun too often is not begun again. Measurements keep the mark as their own
//! result (`profile.rs`); the other steps that read what users bring keep it beside.
//!
//! Where engines are isolated, they end another process, and this one ends for reasons of its own: a mark is left only
//! where the step makes it grow by much, so that the system may have ended it for want of memory.
//!
//! A claim that is given back, because others wait or the process ends, says nothing of the step: its marks go with it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_registry::Step;
use tokio::task::AbortHandle;

use super::{Generator, Registration, extend::claim_number};
use crate::{Claim, Error, memory, step};

/// Growth from which on a step may be why this process ended.
const SUSPICIOUS_BYTES: u64 = 256 << 20;

/// Time between two looks at the memory.
const LOOK: Duration = Duration::from_millis(50);

/// The mark.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct StartMark {
    /// In how many claims of the job.
    starts: u32,
    /// The latest of them, by its number among all claims.
    claim: u32,
}

/// Looks at this process as long as a step is on its way.
pub(super) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Generator {
    /// Takes back the marks of a claim that is given back.
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

/// A mark of this claim as it was without it; `None` where it is none.
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
    /// Notes that a step is begun once more. Fails where it was begun too often already.
    pub(super) async fn count(&mut self, step: &str) -> Result<(), Error> {
        let (mark, claim) = (step::begun(step), self.claim_number());
        let before = self.stored.get(&mark).cloned();
        let before: Option<StartMark> = before.and_then(|value| serde_json::from_value(value).ok());
        let starts = before.map_or(0, |before| {
            // Trying again within one claim is no sign of a process that ended.
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
