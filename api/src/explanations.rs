//! Why queries were answered as they were, kept for a while in memory.
//!
//! Only queries that ask for an explanation leave one. What is kept is bounded in time, in number and in bytes; the
//! oldest goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_registry::KeyScope;
use sextant_types::{ApplicationId, Code};

use crate::{auth::Caller, codec::short, problem::Problem};

/// For so long an explanation is kept.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Most explanations at once.
const MOST: usize = 4096;
/// Most bytes of all of them.
const MOST_BYTES: usize = 16 << 20;

/// Longest id under which one is found, bytes.
pub(crate) const LONGEST_ID: usize = 128;

/// The explanations that are kept.
#[derive(Default)]
pub(crate) struct Explanations(Mutex<Kept>);

/// One query's.
pub(crate) struct Explained {
    /// Under which it is found.
    pub id: String,
    /// Who asked.
    pub caller: String,
    /// Whom the query was for, where that is known.
    pub application: Option<ApplicationId>,
    /// The document, JSON.
    pub document: Bytes,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    in_order: VecDeque<(Instant, Arc<Explained>)>,
    /// Several where ids come again; oldest first.
    by_id: HashMap<String, Vec<Arc<Explained>>>,
    bytes: usize,
}

// === impl Explanations ===

impl Explanations {
    /// Keeps one.
    pub fn keep(&self, explained: Explained) {
        let now = Instant::now();
        let explained = Arc::new(explained);
        let mut kept = self.0.lock();
        kept.bytes += explained.size();
        let of_id = kept.by_id.entry(explained.id.clone()).or_default();
        of_id.push(Arc::clone(&explained));
        kept.in_order.push_back((now, explained));
        kept.forget(now);
    }

    /// The last one of a query of that id that the caller may see.
    pub fn find(&self, id: &str, caller: &Caller) -> Result<Bytes, Problem> {
        let mut kept = self.0.lock();
        kept.forget(Instant::now());
        let mut of_id = kept.by_id.get(id).into_iter().flatten().rev();
        let found = of_id.find(|explained| explained.is_for(caller));
        found
            .map(|found| found.document.clone())
            .ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> Problem {
    let minutes = KEPT.as_secs() / 60;
    let detail = format!(
        "no explanation of query `{}` is kept here: it is for `{minutes}` minutes, of the last `{MOST}` queries \
         that said `\"explain\": true`, by the process that answered, for the key that asked",
        short(id)
    );
    Problem::new(Code::QueryNotFound, detail)
}

// === impl Explained ===

impl Explained {
    /// Whether a caller has asked the query, is bound to its application, or may see everything.
    fn is_for(&self, caller: &Caller) -> bool {
        let of_its_own =
            caller.application().is_some() && caller.application() == self.application.as_ref();
        self.caller == caller.name() || of_its_own || caller.has(KeyScope::Admin)
    }

    fn size(&self) -> usize {
        2 * self.id.len() + self.caller.len() + self.document.len()
    }
}

// === impl Kept ===

impl Kept {
    fn forget(&mut self, now: Instant) {
        while let Some((since, _)) = self.in_order.front() {
            let is_old = now.duration_since(*since) > KEPT;
            if !is_old && self.in_order.len() <= MOST && self.bytes <= MOST_BYTES {
                return;
            }
            let Some((_, oldest)) = self.in_order.pop_front() else {
                return;
            };
            self.bytes -= oldest.size();
            if let Some(of_id) = self.by_id.get_mut(&oldest.id) {
                of_id.retain(|one| !Arc::ptr_eq(one, &oldest));
                if of_id.is_empty() {
                    self.by_id.remove(&oldest.id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(id: &str, document: &str) -> Explained {
        Explained {
            id: id.to_owned(),
            caller: Caller::Anyone.name().to_owned(),
            application: None,
            document: Bytes::from(document.to_owned()),
        }
    }

    #[test]
    fn the_last_one_of_an_id_is_found() {
        let kept = Explanations::default();
        kept.keep(explained("q", "first"));
        kept.keep(explained("q", "second"));
        let found = kept.find("q", &Caller::Anyone).expect("it is kept");
        assert_eq!(found, "second");
        let missing = kept.find("r", &Caller::Anyone).expect_err("it never was");
        assert_eq!(missing.code(), Code::QueryNotFound);
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let kept = Explanations::default();
        for number in 0..=MOST {
            kept.keep(explained(&number.to_string(), "why"));
        }
        assert!(kept.find("0", &Caller::Anyone).is_err());
        assert!(kept.find("1", &Caller::Anyone).is_ok());
        assert_eq!(kept.0.lock().by_id.len(), MOST);
    }

    #[test]
    fn the_oldest_go_where_they_are_too_large() {
        let kept = Explanations::default();
        let large = "x".repeat(MOST_BYTES / 2);
        for id in ["a", "b", "c"] {
            kept.keep(explained(id, &large));
        }
        assert!(kept.find("a", &Caller::Anyone).is_err());
        assert!(kept.find("c", &Caller::Anyone).is_ok());
        assert!(kept.0.lock().bytes <= MOST_BYTES);
    }
}
