//! Answers queries from the cache, and stores answers in it.

use std::{sync::Arc, time::Instant};

use sextant_answers::{Cache, CacheLookup, CachedAnswer, InputsDigest, Key, Room};
use sextant_rpc::{
    Answer, BatchTimings, CacheHit, Explanation, Holder, KeptAnswer, QueryError, Ticket,
};
use sextant_types::NamedTensor;

use crate::{
    Dispatcher,
    ask::{Ask, suits},
    demand::OfferedQuery,
    pending::Done,
    place::Source,
    query::Selection,
    versions::VersionRun,
};

/// What an explanation says of an answer from the cache.
const FROM_CACHE: &str =
    "the same inputs were answered before: the answer is from the cache, and no device ran";

impl Dispatcher {
    /// The cache in which a query is looked up; `None` if its application has none.
    pub(crate) fn cache_of(&self, ask: &Ask) -> Option<Arc<Cache>> {
        if self.caches.is_empty() {
            return None;
        }
        let snapshot = self.snapshot.load();
        let (_, application) = snapshot.application_of(&ask.route)?;
        self.caches.of(application)
    }

    /// Answers a query from a cache. If the cache has no answer, answers the query like any other and stores the
    /// answer.
    pub(crate) async fn answer_by(
        &self,
        cache: &Cache,
        ask: &Ask,
        inputs: Vec<NamedTensor>,
    ) -> Result<Answer, QueryError> {
        let chosen = match self.choose(ask) {
            Ok(chosen) if cache.keeps(&chosen.known.variant) => chosen,
            // A query for which nothing can be chosen now is refused or waits like any other.
            _ => return self.run_into(cache, ask, inputs, None).await,
        };
        let variant = Arc::clone(&chosen.known.variant);
        let digest = InputsDigest::new(&inputs);
        let key = digest.of_variant(&variant.id, &variant.artefact);
        match cache.find(&key, ask.deadline()).await {
            CacheLookup::Kept(kept) if cache.is_trial(&variant) => {
                // The query must not be charged twice.
                drop(chosen);
                let ran = self.run_into(cache, ask, inputs, None).await;
                match &ran {
                    Ok(answer) if answer.variant == variant.id => {
                        let outputs: Vec<_> =
                            answer.outputs.iter().map(|it| it.tensor.clone()).collect();
                        cache.judge(&variant, &kept, &outputs);
                    }
                    Ok(_) => cache.put_off(&variant),
                    Err(_) => cache.fail(&variant),
                }
                ran
            }
            CacheLookup::Kept(kept) => {
                cache.count(true);
                OfferedQuery::new(self, ask).answer_kept(&chosen.known);
                Ok(self.compose_kept(chosen, &kept, ask))
            }
            CacheLookup::Absent(room) => {
                drop(chosen);
                let wanted = (room, (&digest, &key));
                self.run_into(cache, ask, inputs, Some(wanted)).await
            }
            CacheLookup::Late => {
                drop(chosen);
                self.run_into(cache, ask, inputs, None).await
            }
        }
    }

    /// Runs a query. Stores its answer, if there is room, if the variant that the key names answers it.
    async fn run_into(
        &self,
        cache: &Cache,
        ask: &Ask,
        inputs: Vec<NamedTensor>,
        wanted: Option<(Room<'_>, (&InputsDigest, &Key))>,
    ) -> Result<Answer, QueryError> {
        cache.count(false);
        let source = Source::Here(inputs);
        // Right after a switch, the version before may answer while the current one would have to be loaded first.
        let ran = self.run_version(ask, &source).await?;
        let VersionRun { chosen, done, .. } = ran;
        if let Some((room, (digest, key))) = wanted {
            let variant = &chosen.known.variant;
            if digest.of_variant(&variant.id, &variant.artefact) == *key {
                room.fill(CachedAnswer::new(&done.outputs));
            }
        }
        Ok(self.compose(chosen, done, ran.ask.as_ref().unwrap_or(ask)))
    }

    /// Chooses a variant for a query for whose inputs a front end holds cached answers. Tells the front end if the
    /// chosen variant's answer is among them. Returns whether it is.
    pub(crate) fn answer_by_holder(
        &self,
        ask: &Ask,
        (kept, ticket): (&[KeptAnswer], Ticket),
        holder: &dyn Holder,
    ) -> bool {
        // Queries that fall to a canary or shadow go to it instead.
        let Some(cache) = self.cache_of(ask) else {
            return false;
        };
        if self.shadow_of(ask).is_some() || self.tries_canary(ask) {
            return false;
        }
        if kept.is_empty() {
            cache.count(false);
            return false;
        }
        let Ok(chosen) = self.choose(ask) else {
            // A query for which nothing can be chosen now is refused or waits like any other.
            return false;
        };
        let variant = &chosen.known.variant;
        let is_its = |it: &KeptAnswer| it.variant == variant.id && it.file == variant.artefact;
        let is_kept = kept.iter().any(is_its);
        cache.count(is_kept);
        if is_kept {
            OfferedQuery::new(self, ask).answer_kept(&chosen.known);
            holder.has(CacheHit {
                ticket,
                variant: variant.id.clone(),
                model: variant.model.clone(),
                suits: suits(ask, &chosen.known),
                explanation: chosen.explanation.map(from_cache),
            });
        }
        is_kept
    }

    fn compose_kept(&self, chosen: Selection, kept: &CachedAnswer, ask: &Ask) -> Answer {
        let explanation = chosen.explanation.map(from_cache);
        let chosen = Selection {
            explanation,
            // Nothing is loaded or charged for it.
            load: false,
            charge: None,
            ..chosen
        };
        let done = Done {
            outputs: kept.outputs().to_vec(),
            timings: BatchTimings {
                started: Instant::now(),
                queue_us: 0.0,
                input_us: 0.0,
                exec_us: 0.0,
                output_us: 0.0,
                device_us: None,
            },
            // It ran in no batch.
            batch_rows: 0,
            second_usd: 0.0,
        };
        self.compose(chosen, done, ask)
    }
}

fn from_cache(explanation: Explanation) -> Explanation {
    Explanation {
        reason: format!("{}; {FROM_CACHE}", explanation.reason),
        ..explanation
    }
}
