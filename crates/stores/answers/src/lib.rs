//! Answers that are kept: a query that was asked before, of the variant that is chosen for it, needs no device.
//!
//! The cache lies below the selection (Clipper, NSDI 2017, section 4.2): the variant is chosen as for any query, and then
//! looked for under a digest of its name, its file and the inputs ([`InputsDigest::of_variant`]). So a change of targets,
//! load or policy makes no entry wrong, and a variant that is gone or was replaced is never found again. Queries that miss
//! the same entry at once wait for the first of them ([`Cache::find`]; at a front end, which does not choose, equal queries do).
//!
//! Whoever holds the inputs keeps the answers: the dispatcher those of queries that come with their inputs, a front end
//! those of queries whose inputs stay with it.
//!
//! Answers that are drawn at random are not kept: the first `TRIALS` hits of each variant, and then one in
//! `TRIAL_EVERY`, run all the same and are compared; a variant that answers otherwise than before is left out for good.
//! Where another variant is chosen in place of one that was to run, it runs at its next hit ([`Cache::put_off`]), and so it
//! does where one of the first queries failed ([`Cache::fail`]).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::PlaceholderGuard};
use sextant_types::{
    ApplicationId, Data, Digest as FileDigest, NamedTensor, Resources, Tensor, Variant, VariantId,
    company::relative_distance,
};
use sha2::{Digest, Sha256};

/// So many hits of a variant run all the same, until it is known to answer alike.
const TRIALS: u64 = 2;

/// Afterwards one in so many.
const TRIAL_EVERY: u64 = 1024;

/// Furthest that two answers to the same inputs may be apart, as a share of their length: batches of other sizes round
/// otherwise.
const FURTHEST: f64 = 1e-3;

/// Bytes of an entry beside its outputs.
const ENTRY_BYTES: u64 = 256;

/// Bytes of an entry from which the number of entries is guessed.
const USUAL_BYTES: u64 = 1024;

/// The digest of a variant, its file and the inputs.
pub type Key = [u8; 32];

/// The digest of the inputs of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputsDigest([u8; 32]);

/// The caches of all applications that have one.
#[derive(Default)]
pub struct Caches(ArcSwap<BTreeMap<ApplicationId, Arc<Cache>>>);

/// The answers of one application.
pub struct Cache {
    max_bytes: u64,
    ttl: Option<Duration>,
    entries: quick_cache::sync::Cache<Key, CachedAnswer, Bytewise>,
    /// Files of variants, and how they were hit; `None` for those that draw at random.
    variants: Mutex<BTreeMap<FileDigest, Option<Hits>>>,
    counts: Counts,
}

/// How a variant was hit.
struct Hits {
    /// So many of the next run all the same.
    due: u64,
    /// Others.
    count: u64,
}

/// What a cache has done.
#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct CachedAnswer {
    at: Instant,
    outputs: Arc<[Tensor]>,
}

#[derive(Clone)]
struct Bytewise;

/// What is found under a key.
pub enum CacheLookup<'a> {
    /// An answer.
    Kept(CachedAnswer),
    /// None yet: whoever has this makes it, others wait.
    Absent(Room<'a>),
    /// Nobody has made it in time.
    Late,
}

/// The right to make an answer that others wait for. Where it is dropped, one of them has it next.
pub struct Room<'a>(Guard<'a>);

type Guard<'a> = PlaceholderGuard<
    'a,
    Key,
    CachedAnswer,
    Bytewise,
    std::hash::RandomState,
    quick_cache::sync::DefaultLifecycle<Key, CachedAnswer>,
>;

/// How much a cache holds and has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFigures {
    /// Queries that were answered from it.
    pub hits: u64,
    /// Queries that were not.
    pub misses: u64,
    /// What it holds, bytes.
    pub bytes: u64,
}

// === impl Caches ===

impl Caches {
    /// The cache of an application, where it has one.
    pub fn of(&self, application: &ApplicationId) -> Option<Arc<Cache>> {
        self.0.load().get(application).cloned()
    }

    /// Whether no application has one.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Has the caches that the applications of these variants are to have, all together of at most `most_bytes`, of which
    /// those get some first whose names come first. What changes in size or time begins empty.
    pub fn follow<'a>(&self, variants: impl Iterator<Item = &'a Variant>, most_bytes: u64) {
        let mut wanted: BTreeMap<&ApplicationId, &Resources> = BTreeMap::new();
        for variant in variants.filter(|variant| variant.resources.cache_bytes > 0) {
            wanted
                .entry(&variant.application)
                .or_insert(&variant.resources);
        }
        let known = self.0.load();
        if wanted.is_empty() && known.is_empty() {
            return;
        }
        let mut left = most_bytes;
        let mut caches = BTreeMap::new();
        for (application, resources) in wanted {
            let max_bytes = resources.cache_bytes.min(left);
            left -= max_bytes;
            let ttl = resources.cache_ttl_s.map(|s| Duration::from_secs(s.into()));
            let same = known.get(application);
            let same = same.filter(|it| it.max_bytes == max_bytes && it.ttl == ttl);
            let cache = same
                .cloned()
                .unwrap_or_else(|| Arc::new(Cache::new(max_bytes, ttl)));
            if max_bytes > 0 {
                caches.insert(application.clone(), cache);
            }
        }
        self.0.store(Arc::new(caches));
    }

    /// What each of them holds and has done.
    pub fn figures(&self) -> Vec<(ApplicationId, CacheFigures)> {
        let caches = self.0.load();
        let figures = caches
            .iter()
            .map(|(id, cache)| (id.clone(), cache.figures()));
        figures.collect()
    }
}

// === impl Cache ===

impl Cache {
    fn new(max_bytes: u64, ttl: Option<Duration>) -> Self {
        let usual = usize::try_from(max_bytes / USUAL_BYTES).unwrap_or(usize::MAX);
        Self {
            max_bytes,
            ttl,
            entries: quick_cache::sync::Cache::with_weighter(
                usual.clamp(16, 1 << 20),
                max_bytes,
                Bytewise,
            ),
            variants: Mutex::default(),
            counts: Counts::default(),
        }
    }

    fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.counts.hits.load(Ordering::Relaxed),
            misses: self.counts.misses.load(Ordering::Relaxed),
            bytes: self.entries.weight(),
        }
    }

    /// Whether the answers of a variant are kept.
    pub fn keeps(&self, variant: &Variant) -> bool {
        !matches!(self.variants.lock().get(&variant.artefact), Some(None))
    }

    /// What is under a key, or comes there by `deadline` because somebody else is about to make it.
    pub async fn find(&self, key: &Key, deadline: Option<Instant>) -> CacheLookup<'_> {
        loop {
            let found = self.entries.get_value_or_guard_async(key);
            let found = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline.into(), found).await,
                None => Ok(found.await),
            };
            match found {
                Ok(Ok(kept)) if self.is_old(&kept) => drop(self.entries.remove(key)),
                Ok(Ok(kept)) => return CacheLookup::Kept(kept),
                Ok(Err(guard)) => return CacheLookup::Absent(Room(guard)),
                Err(_) => return CacheLookup::Late,
            }
        }
    }

    /// What is under a key now.
    pub fn get(&self, key: &Key) -> Option<CachedAnswer> {
        let kept = self.entries.get(key)?;
        match self.is_old(&kept) {
            true => {
                self.entries.remove(key);
                None
            }
            false => Some(kept),
        }
    }

    /// Keeps an answer.
    pub fn put(&self, key: Key, kept: CachedAnswer) {
        self.entries.insert(key, kept);
    }

    fn is_old(&self, kept: &CachedAnswer) -> bool {
        self.ttl.is_some_and(|ttl| kept.at.elapsed() >= ttl)
    }

    /// Counts a hit of a variant, and tells whether it is to run all the same.
    pub fn is_trial(&self, variant: &Variant) -> bool {
        let new = Hits {
            due: TRIALS,
            count: 0,
        };
        let mut variants = self.variants.lock();
        let Some(hits) = variants.entry(variant.artefact).or_insert(Some(new)) else {
            return true;
        };
        if hits.due > 0 {
            hits.due -= 1;
            return true;
        }
        hits.count += 1;
        hits.count.is_multiple_of(TRIAL_EVERY)
    }

    /// Has a variant that was to run all the same do so at its next hit, since another was chosen this time.
    pub fn put_off(&self, variant: &Variant) {
        if let Some(Some(hits)) = self.variants.lock().get_mut(&variant.artefact) {
            hits.due += 1;
        }
    }

    /// The query failed by which a variant was to run all the same. One of the first hits is made up for at the next; later ones
    /// are not: what is known to answer alike answers from the cache while no device can.
    pub fn fail(&self, variant: &Variant) {
        if let Some(Some(hits)) = self.variants.lock().get_mut(&variant.artefact) {
            hits.due += u64::from(hits.count < TRIAL_EVERY);
        }
    }

    /// Compares an answer with the one that is kept; a variant that answers otherwise is left out from now on.
    pub fn judge(&self, variant: &Variant, kept: &CachedAnswer, outputs: &[Tensor]) {
        let is_alike = |(one, other): (&Tensor, &Tensor)| {
            let is_like = one.shape() == other.shape() && one.data_type() == other.data_type();
            is_like && (one == other || relative_distance(one, other) <= FURTHEST)
        };
        let is_same =
            kept.outputs.len() == outputs.len() && kept.outputs.iter().zip(outputs).all(is_alike);
        if !is_same {
            let id = &variant.id;
            tracing::warn!(variant = %id, "the variant answers the same inputs otherwise: its answers are not kept");
            self.variants.lock().insert(variant.artefact, None);
        }
    }

    /// Counts a query that was answered from it, or was not.
    pub fn count(&self, is_hit: bool) {
        let count = match is_hit {
            true => &self.counts.hits,
            false => &self.counts.misses,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

// === impl CachedAnswer ===

impl CachedAnswer {
    /// Copies of outputs: those of a batch are pieces of one buffer, all of which a piece would hold.
    pub fn new(outputs: &[Tensor]) -> Self {
        Self {
            at: Instant::now(),
            outputs: outputs.iter().map(copied).collect(),
        }
    }

    /// In the order of the signature.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }
}

// === impl Room ===

impl Room<'_> {
    /// Gives the answer to all who wait for it.
    pub fn fill(self, kept: CachedAnswer) {
        // Whoever replaced it meanwhile has made the same.
        drop(self.0.insert(kept));
    }
}

fn copied(tensor: &Tensor) -> Tensor {
    let (shape, data_type) = (tensor.shape().to_vec(), tensor.data_type());
    let copy = match tensor.data() {
        Data::Plain(bytes) => Tensor::from_bytes(data_type, shape, Bytes::copy_from_slice(bytes)),
        Data::Strings(texts) => Tensor::from_strings(shape, texts.iter()),
    };
    // The same elements in the same shape.
    copy.unwrap_or_else(|_| tensor.clone())
}

impl Weighter<Key, CachedAnswer> for Bytewise {
    fn weight(&self, _: &Key, kept: &CachedAnswer) -> u64 {
        let outputs = kept.outputs.iter().map(|it| it.held_bytes() as u64);
        ENTRY_BYTES + outputs.sum::<u64>()
    }
}

// === impl InputsDigest ===

impl InputsDigest {
    /// Of inputs in the order of the signature: no two that differ have the same, whoever makes them up.
    pub fn new(inputs: &[NamedTensor]) -> Self {
        let mut hasher = Sha256::new();
        for input in inputs {
            part(&mut hasher, input.name.as_bytes());
            part(&mut hasher, input.tensor.data_type().name().as_bytes());
            let shape = input.tensor.shape().iter();
            let shape: Vec<u8> = shape.flat_map(|it| (*it as u64).to_le_bytes()).collect();
            part(&mut hasher, &shape);
            match input.tensor.data() {
                Data::Plain(bytes) => part(&mut hasher, bytes),
                Data::Strings(texts) => texts.iter().for_each(|text| part(&mut hasher, text)),
            }
        }
        Self(hasher.finalize().into())
    }

    /// The key of the answer that a variant with this file gives to them.
    pub fn of_variant(&self, variant: &VariantId, file: &FileDigest) -> Key {
        let mut hasher = Sha256::new();
        part(&mut hasher, variant.as_str().as_bytes());
        part(&mut hasher, file.to_string().as_bytes());
        part(&mut hasher, &self.0);
        hasher.finalize().into()
    }
}

/// Takes in one part, whose length tells it from the next.
fn part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
mod tests;
