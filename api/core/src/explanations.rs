//! Explanations of queries, kept for a while in memory.
//!
//! Queries that ask for an explanation leave one, and so do some slow and refused queries. The number, the bytes and
//! the age of the explanations are limited; the oldest is dropped first.

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

/// How long an explanation is kept.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Most explanations that queries asked for, and most bytes of all of them.
const MOST: usize = 4096;
const MOST_BYTES: usize = 16 << 20;
/// Most explanations of slow and refused queries, and most bytes of all of them.
const MOST_NOTICED: usize = 1024;
const MOST_NOTICED_BYTES: usize = 4 << 20;
/// Most of the latter in a second for one application, so that a flood of refusals costs little and displaces few
/// others.
const MOST_NOTICED_PER_S: u32 = 8;

/// Longest id of an explanation, bytes.
pub const LONGEST_ID: usize = 128;

/// The explanations that are kept.
pub struct Explanations {
    /// Explanations of queries that said `explain`.
    asked: Mutex<ExplanationLog>,
    /// Explanations of slow and refused queries that did not.
    noticed: Mutex<ExplanationLog>,
}

/// The explanation of one query.
pub struct Explanation {
    /// The id under which it is found.
    pub id: String,
    /// The caller of the query.
    pub caller: String,
    /// The application of the query, if known.
    pub application: Option<ApplicationId>,
    /// The document, JSON.
    pub document: Bytes,
}

struct ExplanationLog {
    most: usize,
    most_bytes: usize,
    /// The present second, and the number of explanations kept in it by application.
    second: (Instant, HashMap<Option<ApplicationId>, u32>),
    /// All explanations, oldest first.
    in_order: VecDeque<(Instant, Arc<Explanation>)>,
    /// Explanations by id, oldest first; several if an id repeats.
    by_id: HashMap<String, Vec<Arc<Explanation>>>,
    bytes: usize,
}

// === impl Explanations ===

impl Explanations {
    /// Keeps an explanation that a query asked for.
    pub fn keep(&self, explained: Explanation) {
        self.asked.lock().keep(explained);
    }

    /// Keeps an explanation of a slow or refused query.
    pub fn notice(&self, explained: Explanation) {
        self.noticed.lock().keep(explained);
    }

    /// Whether one more explanation of a slow or refused query may be kept for an application.
    pub fn has_room(&self, application: Option<&ApplicationId>) -> bool {
        self.noticed.lock().has_room(application)
    }

    /// The last explanation with that id that the caller may see.
    pub fn find(&self, id: &str, caller: &Caller) -> Result<Bytes, Problem> {
        let found = self.asked.lock().find(id, caller);
        let found = found.or_else(|| self.noticed.lock().find(id, caller));
        found.ok_or_else(|| unknown(id))
    }

    /// The last explanations that the caller may see, newest first; each query once.
    pub fn last(&self, most: usize, caller: &Caller) -> Vec<Bytes> {
        let mut last = self.asked.lock().last(most, caller);
        last.extend(self.noticed.lock().last(most, caller));
        last.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let documents = last.into_iter().map(|(_, document)| document);
        documents.take(most).collect()
    }
}

impl Default for Explanations {
    fn default() -> Self {
        Self {
            asked: Mutex::new(ExplanationLog::new(MOST, MOST_BYTES)),
            noticed: Mutex::new(ExplanationLog::new(MOST_NOTICED, MOST_NOTICED_BYTES)),
        }
    }
}

fn unknown(id: &str) -> Problem {
    let minutes = KEPT.as_secs() / 60;
    let detail = format!(
        "no explanation of query `{}` is kept here: it is for `{minutes}` minutes, of the last `{MOST}` queries \
         that said `\"explain\": true` and of some that were slow or refused, by the process that answered, for the \
         key that asked",
        short(id)
    );
    Problem::new(Code::QueryNotFound, detail)
}

// === impl Explanation ===

impl Explanation {
    /// Whether a caller has sent the query, is bound to its application, or may see everything.
    fn is_for(&self, caller: &Caller) -> bool {
        let of_its_own =
            caller.application().is_some() && caller.application() == self.application.as_ref();
        self.caller == caller.name() || of_its_own || caller.has(KeyScope::Admin)
    }

    fn size(&self) -> usize {
        2 * self.id.len() + self.caller.len() + self.document.len()
    }
}

// === impl ExplanationLog ===

impl ExplanationLog {
    fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            most,
            most_bytes,
            second: (Instant::now(), HashMap::new()),
            in_order: VecDeque::new(),
            by_id: HashMap::new(),
            bytes: 0,
        }
    }

    fn keep(&mut self, explained: Explanation) {
        let now = Instant::now();
        let explained = Arc::new(explained);
        self.bytes += explained.size();
        let of_id = self.by_id.entry(explained.id.clone()).or_default();
        of_id.push(Arc::clone(&explained));
        self.in_order.push_back((now, explained));
        self.forget(now);
    }

    fn has_room(&mut self, application: Option<&ApplicationId>) -> bool {
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.second = (Instant::now(), HashMap::new());
        }
        let noticed = self.second.1.entry(application.cloned()).or_default();
        *noticed += 1;
        *noticed <= MOST_NOTICED_PER_S
    }

    fn find(&mut self, id: &str, caller: &Caller) -> Option<Bytes> {
        self.forget(Instant::now());
        let mut of_id = self.by_id.get(id).into_iter().flatten().rev();
        let found = of_id.find(|explained| explained.is_for(caller));
        found.map(|found| found.document.clone())
    }

    /// The last explanations, with the times of keeping them, newest first.
    fn last(&mut self, most: usize, caller: &Caller) -> Vec<(Instant, Bytes)> {
        self.forget(Instant::now());
        let mut last: Vec<(Instant, Bytes)> = Vec::new();
        for (at, explained) in self.in_order.iter().rev() {
            let document = &explained.document;
            // Both ids of a query have the same document, in adjacent entries.
            let is_other = |(_, other): &(Instant, Bytes)| other.as_ptr() != document.as_ptr();
            if explained.is_for(caller) && last.iter().all(is_other) {
                last.push((*at, document.clone()));
            }
            if last.len() == most {
                break;
            }
        }
        last
    }

    fn forget(&mut self, now: Instant) {
        while let Some((since, _)) = self.in_order.front() {
            let is_old = now.duration_since(*since) > KEPT;
            if !is_old && self.in_order.len() <= self.most && self.bytes <= self.most_bytes {
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

    fn explained(id: &str, document: &str) -> Explanation {
        Explanation {
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
        assert_eq!(kept.asked.lock().by_id.len(), MOST);
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
        assert!(kept.asked.lock().bytes <= MOST_BYTES);
    }
}
