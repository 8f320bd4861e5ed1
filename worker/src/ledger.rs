//! Memory accounting in pages: weights count once per artefact, working memory once per session.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sextant_engine::pages::{PageCache, PageSet, PageShortage};
use sextant_rpc::Pages;
use sextant_types::{Digest, EngineName, Optimization, Precision, Variant};

/// Which pages are held, and for what. Variants that differ only in their maximum batch share a session; variants of
/// one artefact and precision on one engine share its weights.
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

struct Books {
    cache: PageCache,
    weights: HashMap<Weights, SharedPages>,
    sessions: HashMap<Session, SharedPages>,
    /// Pages of all holds.
    kept: u64,
}

/// Pages that variants cannot get, because a model is measured on the device. They are free again when the hold is
/// dropped.
pub(crate) struct Hold {
    ledger: Arc<Ledger>,
    pages: PageSet,
}

/// The pages that one handle of a variant needs. They are free again when the reservation is dropped and no other
/// handle needs them.
pub(crate) struct Reservation {
    ledger: Arc<Ledger>,
    session: Session,
    weights_pages: u64,
    session_pages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Weights {
    engine: EngineName,
    artefact: Digest,
    precision: Precision,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Session {
    weights: Weights,
    optimization: Optimization,
    threads: u16,
}

/// Pages that several holders share: as many as the most demanding holder needs.
#[derive(Default)]
struct SharedPages {
    pages: PageSet,
    wanted: Vec<u64>,
}

impl Ledger {
    pub(crate) fn new(page_bytes: u64, pages: u64) -> Self {
        Self {
            books: Mutex::new(Books {
                cache: PageCache::new(page_bytes, pages),
                weights: HashMap::new(),
                sessions: HashMap::new(),
                kept: 0,
            }),
        }
    }

    /// Takes all the pages that `variant` needs in addition to those held, or none.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        variant: &Variant,
    ) -> Result<Reservation, PageShortage> {
        let mut books = self.lock();
        let wanted = books.wanted(variant);
        let missing = wanted.missing(&books);
        let mut pages = books.cache.acquire(missing.0 + missing.1)?;
        let for_session = pages.shrink(missing.0);
        let PageDemand {
            session,
            pages: (weights_pages, session_pages),
        } = wanted;
        enter(
            &mut books.weights,
            session.weights.clone(),
            pages,
            weights_pages,
        );
        enter(
            &mut books.sessions,
            session.clone(),
            for_session,
            session_pages,
        );
        Ok(Reservation {
            ledger: Arc::clone(self),
            session,
            weights_pages,
            session_pages,
        })
    }

    /// Whether [`Self::reserve`] would succeed now.
    pub(crate) fn check(&self, variant: &Variant) -> Result<(), PageShortage> {
        let books = self.lock();
        let missing = books.wanted(variant).missing(&books);
        let (needed, free) = (missing.0 + missing.1, books.cache.free());
        if needed > free {
            return Err(PageShortage { needed, free });
        }
        Ok(())
    }

    /// Pages of a variant that shares no pages.
    pub(crate) fn pages_of(&self, variant: &Variant) -> u64 {
        let (weights, session) = self.lock().wanted(variant).pages;
        weights.saturating_add(session)
    }

    /// A hold without pages.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        Hold {
            ledger: Arc::clone(self),
            pages: PageSet::default(),
        }
    }

    /// Pages of all holds.
    pub(crate) fn kept(&self) -> u64 {
        self.lock().kept
    }

    /// Pages that `bytes` fill.
    pub(crate) fn pages_for(&self, bytes: u64) -> u64 {
        self.lock().cache.pages_for(bytes)
    }

    pub(crate) fn pages(&self) -> Pages {
        let cache = &self.lock().cache;
        Pages {
            page_bytes: cache.page_bytes(),
            total: cache.total(),
            free: cache.free(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a variant needs: its session, the pages of its weights and those of its working memory.
struct PageDemand {
    session: Session,
    pages: (u64, u64),
}

impl PageDemand {
    /// Pages that are missing beyond those that others hold for the same weights and session.
    fn missing(&self, books: &Books) -> (u64, u64) {
        let weights = books.weights.get(&self.session.weights);
        let session = books.sessions.get(&self.session);
        let held = |held: Option<&SharedPages>| held.map_or(0, |held| held.pages.len());
        (
            self.pages.0.saturating_sub(held(weights)),
            self.pages.1.saturating_sub(held(session)),
        )
    }
}

impl Books {
    fn wanted(&self, variant: &Variant) -> PageDemand {
        let (spec, profile) = (&variant.spec, &variant.profile);
        let working_bytes = profile
            .peak_memory_bytes
            .saturating_sub(profile.weights_bytes);
        PageDemand {
            session: Session {
                weights: Weights {
                    engine: spec.engine.clone(),
                    artefact: variant.artefact,
                    precision: spec.precision,
                },
                optimization: spec.optimization,
                threads: spec.threads,
            },
            pages: (
                self.cache.pages_for(profile.weights_bytes),
                self.cache.pages_for(working_bytes),
            ),
        }
    }
}

fn enter<K: Eq + Hash>(held: &mut HashMap<K, SharedPages>, key: K, pages: PageSet, wanted: u64) {
    let held = held.entry(key).or_default();
    held.pages.join(pages);
    held.wanted.push(wanted);
}

/// Removes one holder. Returns the pages that the other holders do not need.
fn leave<K: Eq + Hash>(held: &mut HashMap<K, SharedPages>, key: &K, wanted: u64) -> PageSet {
    let Some(entry) = held.get_mut(key) else {
        return PageSet::default();
    };
    if let Some(at) = entry.wanted.iter().position(|pages| *pages == wanted) {
        entry.wanted.swap_remove(at);
    }
    let left = entry.wanted.iter().copied().max();
    let pages = entry.pages.shrink(left.unwrap_or(0));
    if left.is_none() {
        held.remove(key);
    }
    pages
}

// === impl Hold ===

impl Hold {
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len()
    }

    /// Takes free pages until it has `wanted` pages or none is free. Returns how many are still missing.
    pub(crate) fn grow(&mut self, wanted: u64) -> u64 {
        let missing = wanted.saturating_sub(self.pages.len());
        let mut books = self.ledger.lock();
        let count = missing.min(books.cache.free());
        // At most as many as are free.
        if let Ok(taken) = books.cache.acquire(count) {
            books.kept += count;
            self.pages.join(taken);
        }
        wanted.saturating_sub(self.pages.len())
    }

    /// Takes up to `pages` pages from another hold.
    pub(crate) fn take_over(&mut self, other: &mut Self, pages: u64) {
        let left = other.pages().saturating_sub(pages);
        self.pages.join(other.pages.shrink(left));
    }

    /// Gives back the pages beyond `wanted`.
    pub(crate) fn shrink(&mut self, wanted: u64) {
        let beyond = self.pages.shrink(wanted);
        let mut books = self.ledger.lock();
        books.kept -= beyond.len();
        books.cache.release(beyond);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

// === impl Reservation ===

impl Reservation {
    /// Pages that its handle needs; other handles may share some of them.
    pub(crate) fn pages(&self) -> u64 {
        self.weights_pages + self.session_pages
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = self.ledger.lock();
        let weights = leave(
            &mut books.weights,
            &self.session.weights,
            self.weights_pages,
        );
        books.cache.release(weights);
        let session = leave(&mut books.sessions, &self.session, self.session_pages);
        books.cache.release(session);
    }
}
