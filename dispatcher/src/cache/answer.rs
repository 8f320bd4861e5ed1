//! Answering a query from the cache, or into it.

use std::{sync::Arc, time::Instant};

use sextant_rpc::{Answer, BatchTimings, Explanation, QueryError};
use sextant_types::NamedTensor;

use super::{Cache, Found, Guard, Kept, key};
use crate::{Dispatcher, ask::Ask, pending::Done, place::Source, query::Chosen};

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
        let key = key(&variant, &inputs);
        match cache.find(&key, ask.deadline()).await {
            Found::Kept(kept) if cache.is_trial(&variant) => {
                // A charge is not held twice.
                drop(chosen);
                let answer = self.run_into(cache, ask, inputs, None).await?;
                if answer.variant == variant.id {
                    let outputs: Vec<_> =
                        answer.outputs.iter().map(|it| it.tensor.clone()).collect();
                    cache.judge(&variant, &kept, &outputs);
                }
                Ok(answer)
            }
            Found::Kept(kept) => {
                cache.count(true);
                Ok(self.compose_kept(chosen, &kept, ask))
            }
            Found::Absent(guard) => {
                drop(chosen);
                self.run_into(cache, ask, inputs, Some((guard, &key))).await
            }
            Found::Late => {
                drop(chosen);
                self.run_into(cache, ask, inputs, None).await
            }
        }
    }

    /// Runs a query, and keeps its answer under the key of which the guard is, if the variant answers that the key names.
    async fn run_into(
        &self,
        cache: &Cache,
        ask: &Ask,
        inputs: Vec<NamedTensor>,
        guarded: Option<(Guard<'_>, &super::Key)>,
    ) -> Result<Answer, QueryError> {
        cache.count(false);
        let kept = guarded.is_some().then(|| inputs.clone());
        let source = Source::Here(inputs);
        let (chosen, done) = self.run_query(ask, &source, true).await?;
        if let (Some((guard, wanted)), Some(inputs)) = (guarded, kept)
            && key(&chosen.known.variant, &inputs) == *wanted
        {
            // Whoever replaced it meanwhile has made the same.
            drop(guard.insert(Kept::new(&done.outputs)));
        }
        Ok(self.compose(chosen, done, ask))
    }

    fn compose_kept(&self, chosen: Chosen, kept: &Kept, ask: &Ask) -> Answer {
        let explanation = chosen.explanation.map(|explanation| Explanation {
            reason: format!("{}; {FROM_CACHE}", explanation.reason),
            ..explanation
        });
        let chosen = Chosen {
            explanation,
            // Nothing is loaded for it, and nothing charged.
            load: false,
            charge: None,
            ..chosen
        };
        let done = Done {
            outputs: kept.outputs.to_vec(),
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
