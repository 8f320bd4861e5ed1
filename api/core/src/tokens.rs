//! Makes and reads the tokens of answers. The keys are in the registry, so all front ends have the same keys.
//!
//! Signing reads no store: the keys, and which outputs are scored, are read beforehand, and again from time to time.
//!
//! A key signs for 30 days. Its successor is written ten minutes before it begins to sign, so that every front end has
//! read it by then. A key is removed when no token that it signed is accepted any more.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sextant_feedback::{
    AnswerSource, Forgery, KEY_BYTES, Keys, LATEST_MS, Prediction, SigningKey, Token,
};
use sextant_registry::{FeedbackKey, Registry};
use sextant_rpc::Answer;
use sextant_types::{Code, Metric, ModelId, NamedTensor, Route, time::unix_ms};

use crate::{ApiState, problem::Problem};

/// How long a key signs, ms.
const SIGNS_MS: u64 = 30 * 24 * 3600 * 1000;

/// How long a key is written before it signs, ms.
const AHEAD_MS: u64 = 10 * 60 * 1000;

/// Most that the clocks of front ends may differ, ms.
const APART_MS: u64 = 3600 * 1000;

/// Shortest time between two readings of the keys because of a token with an unknown key: anybody can send such a
/// token.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// How long the scored output of a model is remembered: another process may replace the model.
const BELIEVED: Duration = Duration::from_secs(60);

/// The keys, and a number for each query.
pub struct Tokens {
    known: ArcSwap<KeySet>,
    outputs: ArcSwap<Outputs>,
    serial: AtomicU64,
    renewed: Mutex<Option<Instant>>,
}

/// The scored output of each model, and when it was read.
type Outputs = HashMap<ModelId, (Instant, Option<Arc<str>>)>;

#[derive(Default)]
struct KeySet {
    keys: Keys,
    /// The numbers of the keys, and when each begins to sign, ms since the Unix epoch; the oldest first.
    from: Vec<(u32, u64)>,
}

// === impl Tokens ===

impl Tokens {
    /// The content of a token that a front end of this service has made.
    pub fn read(&self, text: &str) -> Result<Token, Forgery> {
        self.known.load().keys.read(text)
    }

    /// The number of a query in the token of its answer; `None` if no application accepts feedback.
    pub fn serial(&self, state: &ApiState) -> Option<u64> {
        let is_taken = state.directory().anybody_takes_feedback();
        is_taken.then(|| self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// The token of an answer to the query with number `serial`; `None` if its application accepts no feedback, or no
    /// key has been read yet.
    pub fn of(
        &self,
        state: &ApiState,
        route: &Route,
        (answer, serial): (&Answer, Option<u64>),
    ) -> Option<String> {
        let (application, metric) = state.directory().feedback_of(route, &answer.model)?;
        let outputs = self.outputs.load();
        let scored = outputs
            .get(&answer.model)
            .and_then(|(_, name)| name.as_deref());
        let output = scored_output(&answer.outputs, scored);
        let served = AnswerSource {
            application: &application,
            model: &answer.model,
            version: state.directory().version(&answer.model).unwrap_or(0),
            variant: &answer.variant,
            propensity: state.directory().propensity(route, &answer.model) as f32,
            rows: answer.rows,
        };
        let serial = serial.unwrap_or_else(|| self.serial.fetch_add(1, Ordering::Relaxed));
        self.sign((&served, serial), &predicted(metric, output, answer.rows))
    }

    /// Reads the keys, and the scored outputs of the models whose applications accept feedback; reads nothing if none
    /// does.
    pub async fn follow(&self, state: &ApiState) -> Result<(), sextant_registry::Error> {
        let models = state.directory().models_with_feedback();
        if !state.directory().anybody_takes_feedback() {
            return Ok(());
        }
        self.read_keys(state.registry(), unix_ms()).await?;
        let known = self.outputs.load_full();
        let mut outputs = Outputs::with_capacity(models.len());
        for model in models {
            let believed = known.get(&model);
            let believed = believed.filter(|(at, name)| name.is_some() && at.elapsed() < BELIEVED);
            let read = match believed {
                Some(believed) => believed.clone(),
                None => (Instant::now(), scored(state.registry(), &model).await?),
            };
            outputs.insert(model, read);
        }
        self.outputs.store(Arc::new(outputs));
        Ok(())
    }

    fn sign(&self, (served, serial): (&AnswerSource<'_>, u64), of: &Prediction) -> Option<String> {
        let now_ms = unix_ms();
        let known = self.known.load();
        let key = known.signing(now_ms)?;
        Some(key.sign(served, (now_ms, serial), of))
    }

    /// Reads the keys again, unless that was done a moment ago; returns whether it has read them.
    pub async fn renew(&self, state: &ApiState) -> Result<bool, Problem> {
        {
            let mut renewed = self.renewed.lock();
            if renewed.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
                return Ok(false);
            }
            *renewed = Some(Instant::now());
        }
        self.read_keys(state.registry(), unix_ms()).await?;
        Ok(true)
    }

    /// Reads the keys, makes the next key when it is time, and removes keys whose tokens are no longer accepted.
    async fn read_keys(
        &self,
        registry: &Registry,
        now_ms: u64,
    ) -> Result<(), sextant_registry::Error> {
        let mut keys = registry.feedback_keys().await?;
        if let Some(made) = next(&keys, now_ms).and_then(made) {
            registry.put_feedback_key(&made).await?;
            keys = registry.feedback_keys().await?;
        }
        if let Some(below) = oldest_needed(&keys, now_ms) {
            registry.forget_feedback_keys(below).await?;
        }
        self.known.store(Arc::new(KeySet::read(&keys)));
        Ok(())
    }
}

impl Default for Tokens {
    fn default() -> Self {
        let mut start = [0; 8];
        // Without a random start, two front ends could give the same number in one millisecond. The time in their
        // tokens still distinguishes most queries.
        if getrandom::fill(&mut start).is_err() {
            start = unix_ms().to_le_bytes();
        }
        Self {
            known: ArcSwap::default(),
            outputs: ArcSwap::default(),
            serial: AtomicU64::new(u64::from_le_bytes(start)),
            renewed: Mutex::new(None),
        }
    }
}

// === impl KeySet ===

impl KeySet {
    /// Skips a key that cannot be decoded.
    fn read(keys: &[FeedbackKey]) -> Self {
        let read = |key: &FeedbackKey| {
            let mut secret = [0; KEY_BYTES];
            let decoded = hex::decode_to_slice(&key.secret, &mut secret);
            let signing = decoded
                .map(|()| SigningKey::new(key.number, &secret))
                .ok()?;
            Some((signing, (key.number, key.from_ms)))
        };
        let (keys, from) = keys.iter().filter_map(read).unzip();
        Self {
            keys: Keys::new(keys),
            from,
        }
    }

    /// The key that signs at a time: the latest that has begun to sign, else the first.
    fn signing(&self, now_ms: u64) -> Option<&SigningKey> {
        let begun = self
            .from
            .iter()
            .rev()
            .find(|(_, from_ms)| *from_ms <= now_ms);
        let (number, _) = begun.or_else(|| self.from.first())?;
        self.keys.key(*number)
    }
}

/// The number of the next key if it must be made now, with the times of its creation and of its first signature, ms.
fn next(keys: &[FeedbackKey], now_ms: u64) -> Option<(u32, u64, u64)> {
    match keys.last() {
        None => Some((1, now_ms, now_ms)),
        Some(last) => {
            let is_over = last.from_ms.saturating_add(SIGNS_MS - AHEAD_MS) <= now_ms;
            is_over.then_some((last.number.saturating_add(1), now_ms, now_ms + AHEAD_MS))
        }
    }
}

/// A new key; `None` if the machine has no random numbers.
fn made((number, created_ms, from_ms): (u32, u64, u64)) -> Option<FeedbackKey> {
    let mut secret = [0; KEY_BYTES];
    getrandom::fill(&mut secret).ok()?;
    Some(FeedbackKey {
        number,
        secret: hex::encode(secret),
        created_ms,
        from_ms,
    })
}

/// The scored output of a model.
async fn scored(
    registry: &Registry,
    model: &ModelId,
) -> Result<Option<Arc<str>>, sextant_registry::Error> {
    match registry.scored_output(model).await {
        // The model was deleted a moment ago.
        Err(sextant_registry::Error::NotFound { .. }) => Ok(None),
        read => Ok(read?.map(|scored| scored.output.into())),
    }
}

/// The number of the oldest key that is needed; `None` if all keys are.
fn oldest_needed(keys: &[FeedbackKey], now_ms: u64) -> Option<u32> {
    let is_alone = |key: &&FeedbackKey| key.from_ms + LATEST_MS + APART_MS < now_ms;
    let sole = keys.iter().rev().find(is_alone)?;
    (sole.number > keys.first()?.number).then_some(sole.number)
}

/// The output that labels are about: the scored output, or the only one.
fn scored_output<'a>(outputs: &'a [NamedTensor], scored: Option<&str>) -> Option<&'a NamedTensor> {
    match (scored, outputs) {
        (Some(name), outputs) => outputs.iter().find(|it| it.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

fn predicted(metric: Metric, output: Option<&NamedTensor>, rows: u32) -> Prediction {
    output.map_or(Prediction::Unknown, |output| {
        Prediction::of(metric, &output.tensor, rows)
    })
}

/// The query that `text` names: `text` is a token, or the `query` of an export.
pub fn query_of(tokens: &Tokens, text: &str) -> Result<String, Problem> {
    let is_query = text.len() == 28 && text.bytes().all(|it| it.is_ascii_hexdigit());
    if is_query {
        return Ok(text.to_owned());
    }
    let read = tokens.read(text);
    read.map(|token| token.query()).map_err(|forged| {
        let detail = format!("{forged}; give a token, or the `query` of an export");
        Problem::new(Code::InvalidFeedback, detail).field("query")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32, from_ms: u64) -> FeedbackKey {
        FeedbackKey {
            number,
            secret: "00".repeat(KEY_BYTES),
            created_ms: from_ms,
            from_ms,
        }
    }

    #[test]
    fn a_key_has_a_successor_before_its_time_is_over() {
        assert_eq!(next(&[], 5), Some((1, 5, 5)));
        let first = [key(1, 0)];
        assert_eq!(next(&first, SIGNS_MS - AHEAD_MS - 1), None);
        let at = SIGNS_MS - AHEAD_MS;
        assert_eq!(next(&first, at), Some((2, at, SIGNS_MS)));
        let both = [key(1, 0), key(2, SIGNS_MS)];
        let known = KeySet::read(&both);
        let number = |now_ms| {
            known
                .from
                .iter()
                .rev()
                .find(|it| it.1 <= now_ms)
                .map(|it| it.0)
        };
        assert_eq!(number(SIGNS_MS - 1), Some(1));
        assert_eq!(number(SIGNS_MS), Some(2));
        assert!(known.signing(0).is_some());
    }

    #[test]
    fn a_key_goes_when_no_token_of_it_is_taken() {
        let both = [key(1, 0), key(2, SIGNS_MS)];
        let late = SIGNS_MS + LATEST_MS + APART_MS;
        assert_eq!(oldest_needed(&both, late), None);
        assert_eq!(oldest_needed(&both, late + 1), Some(2));
        assert_eq!(oldest_needed(&both[..1], u64::MAX), None);
    }
}
