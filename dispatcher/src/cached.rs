//! Answering a query from the cache, or into it.

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

/// What an explanation says of an answer that was kept.
const FROM_CACHE: &str =
    "the same inputs were answered before: the answer is from the cache, and no device ran";

impl Dispatcher {
    /// The cache that a query is looked for in; none where its application has none.
    pub(crate) fn cache_of(&self, ask: &Ask) -> Option<Arc<Cache>> {
        if self.caches.is_empty() {
            return None;
        }
        let snapshot = self.snapshot.load();
        let (_, application) = snapshot.application_of(&ask.route)?;
        self.caches.of(application)
    }

    /// Answers a query from a cache, and where that has nothing as any other, and keeps the answer.
    pub(crate) async fn answer_by(
        &self,
        cache: &Cache,
        ask: &Ask,
        inputs: Vec<NamedTensor>,
    ) -> Result<Answer, QueryError> {
        let chosen = match self.choose(ask) {
            Ok(chosen) if cache.keeps(&chosen.known.variant) => chosen,
            // What cannot be chosen now is refused, or waited for, where all queries are.
            _ => return self.run_into(cache, ask, inputs, None).await,
        };
        let variant = Arc::clone(&chosen.known.variant);
        let digest = InputsDigest::new(&inputs);
        let key = digest.of_variant(&variant.id, &variant.artefact);
        match cache.find(&key, ask.deadline()).await {
            CacheLookup::Kept(kept) if cache.is_trial(&variant) => {
                // A charge is not held twice.
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

    /// Runs a query, and keeps its answer where there is room for it, if the variant answers that the key names.
    async fn run_into(
        &self,
        cache: &Cache,
        ask: &Ask,
        inputs: Vec<NamedTensor>,
        wanted: Option<(Room<'_>, (&InputsDigest, &Key))>,
    ) -> Result<Answer, QueryError> {
        cache.count(false);
        let source = Source::Here(inputs);
        // Right behind a switch the version before answers what the current one would have to be loaded for.
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

    /// Chooses for a query of whose inputs a front end holds answers; tells it where the chosen variant's is among them,
    /// and whether it was.
    pub(crate) fn answer_by_holder(
        &self,
        ask: &Ask,
        (kept, ticket): (&[KeptAnswer], Ticket),
        holder: &dyn Holder,
    ) -> bool {
        // A version that is tried answers, or runs once more, what falls to it.
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
            // What cannot be chosen now is refused, or waited for, where all queries are.
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
            // Nothing is loaded for it, and nothing charged.
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
            // No batch carried it.
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
