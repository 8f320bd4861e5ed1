//! Measures a ready model with one more engine.
//!
//! The steps are those of a registration, and have the same names. A stored result is used, whichever job stored it, so
//! only the work for the new engine is done. A configuration that fails in a way that may pass is left open while
//! others run; it is given up at the end of the job.

use super::{Claim, Generator, MeasureOutcome, Registration, Summary, publish::Outcome};
use crate::{
    Config, Error, extension,
    step::{self, ExtensionResult},
};
use sextant_types::time::unix_ms;

impl Generator {
    /// Does the remaining work of an extension, up to the end of its job.
    pub(super) async fn extend(&self, claim: &Claim) -> Result<Summary, Error> {
        let mut registration = Registration::open(&self.parts, claim).await?;
        let named = |name: &str| claim.job.engine.as_ref().is_some_and(|it| it.0 == name);
        registration.engines.retain(|it| named(it.name()));
        let inspected = registration.inspect().await?;
        registration.complete(&inspected).await
    }

    /// Records that a failed job need not be tried again, if that is so.
    pub(crate) async fn note_failure(&self, claim: &Claim, error: &Error) -> Result<(), Error> {
        let Some(engine) = claim.job.engine.as_ref().filter(|_| !error.may_pass()) else {
            return Ok(());
        };
        let name = step::extend(engine);
        let unable = ExtensionResult::Unable {
            code: error.code().as_str().to_owned(),
            reason: error.to_string(),
        };
        let value = serde_json::to_value(unable).map_err(|source| Error::Step {
            step: name.clone(),
            source,
        })?;
        let (job, owner) = (&claim.job.id, &claim.owner);
        let noted = self.registry().put_step_held(job, owner, &name, &value);
        Ok(noted.await?)
    }
}

/// The number of a claim among all claims of all jobs of the model and the engine.
pub(super) fn claim_number(claim: &Claim, config: &Config) -> u32 {
    let job = &claim.job;
    let of_a_job = config.claims.saturating_add(1);
    let before = extension::earlier(job).saturating_mul(of_a_job);
    before.saturating_add(job.attempts)
}

impl Registration<'_> {
    /// The number of this claim among all claims of all jobs of the model and the engine.
    pub(super) fn claim_number(&self) -> u32 {
        claim_number(self.claim, &self.parts.config)
    }

    /// The end of an extension that adds nothing: an error if the reason may pass.
    pub(super) async fn add_nothing(&mut self, outcome: &Outcome<'_>) -> Result<Summary, Error> {
        if let Some((_, error)) = self.passing.pop_first() {
            return Err(error.into());
        }
        let summary = outcome.summary(&[]);
        let result = serde_json::json!(summary);
        let (job, owner) = (&self.claim.job.id, &self.claim.owner);
        let registry = &self.parts.registry;
        registry.finish(job, owner, &result, unix_ms()).await?;
        Ok(summary)
    }

    /// Stores the open configurations as given up: the engine has variants without them.
    pub(super) async fn give_up(&self, outcome: &Outcome<'_>) -> Result<(), Error> {
        for (configuration, measured) in outcome.measured {
            let name = step::measure(configuration);
            if self.passing.contains_key(&name) {
                self.put::<MeasureOutcome>(&name, measured).await?;
            }
        }
        Ok(())
    }
}
