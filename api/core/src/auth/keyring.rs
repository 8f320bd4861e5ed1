//! All valid keys in memory.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use futures::future::join_all;
use sextant_metadata::{Rate, RateStore};
use sextant_registry::{ApiKey, KeyScope, Registry};
use sextant_types::{ApplicationId, time::unix_ms};
use tokio::sync::{Mutex, Semaphore};

use super::secret::Hash;
use crate::allowance::Allowance;

/// The keys as last read from the registry.
pub struct Keyring {
    keys: ArcSwap<Keys>,
    /// Held while the keys are read, so that an older reading never replaces a newer one.
    reading: Mutex<()>,
    rates: Arc<dyn RateStore>,
    max_concurrent: Option<usize>,
}

#[derive(Default)]
struct Keys {
    /// `None` before the first reading.
    revision: Option<u64>,
    by_hash: HashMap<[u8; 8], Vec<Arc<Key>>>,
}

/// A key that was valid when it was read.
pub struct Key {
    /// Its public name.
    pub id: Arc<str>,
    /// What it allows.
    pub scopes: Vec<KeyScope>,
    /// The only application for which the key is valid.
    pub application: Option<ApplicationId>,
    /// When it expires, ms since the Unix epoch.
    pub expires_ms: Option<u64>,
    /// The limits of its requests; `None`: none.
    pub allowance: Option<Arc<Allowance>>,
    /// Places for its requests in flight.
    pub places: Option<Arc<Semaphore>>,
    hash: Hash,
}

// === impl Keyring ===

impl Keyring {
    /// A keyring without keys.
    pub fn new(rates: Arc<dyn RateStore>, max_concurrent: Option<usize>) -> Self {
        Self {
            keys: ArcSwap::default(),
            reading: Mutex::default(),
            rates,
            max_concurrent,
        }
    }

    /// Whether the keys have been read once.
    pub fn is_known(&self) -> bool {
        self.keys.load().revision.is_some()
    }

    /// The key with that hash.
    pub fn find(&self, hash: Hash) -> Option<Arc<Key>> {
        let keys = self.keys.load();
        let same = keys.by_hash.get(&hash.bucket())?;
        same.iter().find(|key| key.hash.is(hash)).cloned()
    }

    /// Whether a key that was found earlier is still valid.
    pub fn holds(&self, key: &Key) -> bool {
        let ended = key.expires_ms.is_some_and(|end| unix_ms() >= end);
        !ended && self.find(key.hash).is_some()
    }

    /// Reads the keys if they have changed.
    pub async fn refresh(&self, registry: &Registry) -> Result<(), sextant_registry::Error> {
        let _reading = self.reading.lock().await;
        let known = self.keys.load_full();
        // Read before the keys: a change in between is then read once more.
        let revision = registry.keys_revision().await?;
        if known.revision == Some(revision) {
            return Ok(());
        }
        let mut by_hash: HashMap<_, Vec<_>> = HashMap::new();
        for row in registry.keys().await? {
            let Some(key) = self.key(&known, row) else {
                continue;
            };
            by_hash.entry(key.hash.bucket()).or_default().push(key);
        }
        let revision = Some(revision);
        self.keys.store(Arc::new(Keys { revision, by_hash }));
        Ok(())
    }

    /// Gives back the tokens of keys that are idle, or of all keys if `all` is set. Takes as long
    /// as one answer of the store, however many keys there are.
    pub async fn give_back(&self, all: bool) {
        let keys = self.keys.load_full();
        let keys = keys.by_hash.values().flatten();
        let limited = keys.filter_map(|key| key.allowance.as_ref());
        join_all(limited.map(|allowance| allowance.give_back(all))).await;
    }

    /// A row of the registry as a key. A key that is known already keeps its allowance.
    fn key(&self, known: &Keys, row: ApiKey) -> Option<Arc<Key>> {
        if row.revoked_ms.is_some() {
            return None;
        }
        let Some(hash) = Hash::parse(&row.hash) else {
            tracing::error!(
                key = row.id,
                "a key's hash is not a SHA-256 hash: it is ignored"
            );
            return None;
        };
        let same = known.by_hash.get(&hash.bucket());
        let same = same.and_then(|keys| keys.iter().find(|key| *key.id == *row.id));
        if let Some(key) = same {
            return Some(Arc::clone(key));
        }
        let rate = row.rate_per_s.map(|per_s| {
            let burst = row.burst.map_or(per_s.ceil(), |burst| burst as f64);
            Rate {
                per_s,
                burst: burst.max(1.0),
            }
        });
        let limited = rate.is_some() || row.quota_per_day.is_some();
        let allowance = || Allowance::new(&row.id, rate, row.quota_per_day, self.rates.clone());
        Some(Arc::new(Key {
            allowance: limited.then(allowance).map(Arc::new),
            places: self.max_concurrent.map(Semaphore::new).map(Arc::new),
            id: row.id.into(),
            scopes: row.scopes,
            application: row.application,
            expires_ms: row.expires_ms,
            hash,
        }))
    }
}
