//! The cache of answers: a query that was asked before, of the variant that is chosen for it, needs no device.
//!
//! The cache lies below the selection (Clipper, NSDI 2017, section 4.2): the variant is chosen as for any query. The
//! cache is then asked for the digest of the variant's name, its file and the inputs ([`InputsDigest::of_variant`]). So
//! a change of targets, load or policy makes no entry wrong, and entries of a variant that was retired or replaced are
//! never found again. Concurrent queries that miss the same entry wait for the first of them ([`Cache::find`]; a front
//! end does not choose a variant, so there equal queries wait for each other).
//!
//! The process that holds the inputs caches the answers: the dispatcher for queries that bring it their inputs, a front
//! end for queries whose inputs stay with it.
//!
//! Answers that a variant draws at random are not cached. To find such variants, the first `TRIALS` hits of each
//! variant, and then one in `TRIAL_EVERY`, run all the same, and the answers are compared. A variant that answers
//! differently is excluded for good. If another variant is chosen in place of the one that was to run, it runs at its
//! next hit ([`Cache::put_off`]). It also does so if one of the first queries failed ([`Cache::fail`]).

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

/// Number of a variant's first hits that run all the same, until the variant is known to repeat its answers.
const TRIALS: u64 = 2;

/// After the first hits, one in this number of hits runs all the same.
const TRIAL_EVERY: u64 = 1024;

/// Largest distance between two equal answers, relative to their length: batches of different sizes round differently.
const FURTHEST: f64 = 1e-3;

/// Bytes of an entry in addition to its outputs.
const ENTRY_BYTES: u64 = 256;

/// Assumed bytes of an entry, from which the number of entries is estimated.
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
    /// By file of a variant: its hits; `None` if its answers are drawn at random.
    variants: Mutex<BTreeMap<FileDigest, Option<Hits>>>,
    counts: Counts,
}

/// The hits of a variant.
struct Hits {
    /// Number of the next hits that run all the same.
    due: u64,
    /// Number of other hits.
    count: u64,
}

/// The counters of a cache.
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

/// The result of a look-up.
pub enum CacheLookup<'a> {
    /// An answer.
    Kept(CachedAnswer),
    /// There is no answer yet. The caller must make it; other callers wait.
    Absent(Room<'a>),
    /// No caller has made the answer in time.
    Late,
}

/// The right to make an answer for which others wait. If it is dropped, one of them gets it.
pub struct Room<'a>(Guard<'a>);

type Guard<'a> = PlaceholderGuard<
    'a,
    Key,
    CachedAnswer,
    Bytewise,
    std::hash::RandomState,
    quick_cache::sync::DefaultLifecycle<Key, CachedAnswer>,
>;

/// The size and the counters of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFigures {
    /// Queries that were answered from it.
    pub hits: u64,
    /// Queries that were not answered from it.
    pub misses: u64,
    /// Bytes that it holds.
    pub bytes: u64,
}

// === impl Caches ===

impl Caches {
    /// The cache of an application, if it has one.
    pub fn of(&self, application: &ApplicationId) -> Option<Arc<Cache>> {
        self.0.load().get(application).cloned()
    }

    /// Whether no application has a cache.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Sets up the caches that the applications of these variants should have. All together hold at most `most_bytes`,
    /// which are given out in the order of the applications' names. A cache whose size or time to live changes starts
    /// empty.
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

    /// The figures of each cache.
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

    /// Whether the answers of a variant are cached.
    pub fn keeps(&self, variant: &Variant) -> bool {
        !matches!(self.variants.lock().get(&variant.artefact), Some(None))
    }

    /// The entry of a key. If another caller is making it, waits for it until `deadline`.
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

    /// The present entry of a key.
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

    /// Caches an answer.
    pub fn put(&self, key: Key, kept: CachedAnswer) {
        self.entries.insert(key, kept);
    }

    fn is_old(&self, kept: &CachedAnswer) -> bool {
        self.ttl.is_some_and(|ttl| kept.at.elapsed() >= ttl)
    }

    /// Counts a hit of a variant. Returns whether the query must run all the same.
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

    /// Makes a variant run all the same at its next hit, because another variant was chosen this time.
    pub fn put_off(&self, variant: &Variant) {
        if let Some(Some(hits)) = self.variants.lock().get_mut(&variant.artefact) {
            hits.due += 1;
        }
    }

    /// The query with which a variant was to run all the same has failed. One of the first hits is made up for at the
    /// next hit. A later one is not: a variant that is known to repeat its answers answers from the cache while no
    /// device can.
    pub fn fail(&self, variant: &Variant) {
        if let Some(Some(hits)) = self.variants.lock().get_mut(&variant.artefact) {
            hits.due += u64::from(hits.count < TRIAL_EVERY);
        }
    }

    /// Compares an answer with the cached one. A variant that answers differently is excluded from now on.
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

    /// Counts a query as a hit or a miss.
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
    /// Copies the outputs: those of a batch are slices of one buffer, and a slice would keep the whole buffer.
    pub fn new(outputs: &[Tensor]) -> Self {
        Self {
            at: Instant::now(),
            outputs: outputs.iter().map(copied).collect(),
        }
    }

    /// The outputs, in the order of the signature.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }
}

// === impl Room ===

impl Room<'_> {
    /// Gives the answer to all callers that wait for it.
    pub fn fill(self, kept: CachedAnswer) {
        // If the entry was replaced meanwhile, the new one has the same answer.
        drop(self.0.insert(kept));
    }
}

fn copied(tensor: &Tensor) -> Tensor {
    let (shape, data_type) = (tensor.shape().to_vec(), tensor.data_type());
    let copy = match tensor.data() {
        Data::Plain(bytes) => Tensor::from_bytes(data_type, shape, Bytes::copy_from_slice(bytes)),
        Data::Strings(texts) => Tensor::from_strings(shape, texts.iter()),
    };
    // This cannot fail: it is the same elements in the same shape.
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
    /// The digest of inputs in the order of the signature. Different inputs have different digests, also if an
    /// adversary makes them up.
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

    /// The key of the answer that a variant with this file gives to these inputs.
    pub fn of_variant(&self, variant: &VariantId, file: &FileDigest) -> Key {
        let mut hasher = Sha256::new();
        part(&mut hasher, variant.as_str().as_bytes());
        part(&mut hasher, file.to_string().as_bytes());
        part(&mut hasher, &self.0);
        hasher.finalize().into()
    }
}

/// Adds one part. Its length separates it from the next part.
fn part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
mod tests;
