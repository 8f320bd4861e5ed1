//! Whose registration begins next, and when.
//!
//! Registrations at the same time disturb each other's measurements, so there are few places, usually one. Whoever has
//! had no turn for the longest time is next, whatever others have in the queue. A registration that takes
//! long would keep everybody else waiting: once all that run are slow, one of another application begins beside
//! them, up to a number that the memory bears.
//!
//! Nothing here knows a clock: *now* is handed in.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sextant_types::ApplicationId;

/// How many may run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// As long as none is slow; at least 1.
    pub(crate) ordinary: usize,
    /// Where all are.
    pub(crate) most: usize,
    /// Time after which one is slow.
    pub(crate) slow_after: Duration,
}

/// Who runs, and who had their last turn when.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Places,
    running: BTreeMap<u64, Running>,
    /// By application: the number of its last turn.
    had: BTreeMap<ApplicationId, u64>,
    turn: u64,
}

#[derive(Debug)]
struct Running {
    application: ApplicationId,
    since: Instant,
}

/// What may begin now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Open {
    /// A place is free: for anybody.
    ToAll,
    /// All are slow: for applications that have nothing running.
    ToOthers,
    /// Nothing before that moment, unless something ends.
    From(Instant),
    /// Nothing before something ends.
    No,
}

// === impl Turns ===

impl Turns {
    /// Nobody has had a turn yet.
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            running: BTreeMap::new(),
            had: BTreeMap::new(),
            turn: 0,
        }
    }

    /// For whom there is a place.
    pub(crate) fn open(&self, now: Instant) -> Open {
        if self.running.len() < self.places.ordinary {
            return Open::ToAll;
        }
        if self.running.len() >= self.places.most {
            return Open::No;
        }
        let youngest = self.running.values().map(|it| it.since).max();
        match youngest.map(|since| since + self.places.slow_after) {
            Some(slow) if slow > now => Open::From(slow),
            _ => Open::ToOthers,
        }
    }

    /// Who is next of those that wait, which are in the order in which they would be without turns.
    pub(crate) fn next(&self, waiting: &[ApplicationId], now: Instant) -> Option<ApplicationId> {
        let open = self.open(now);
        let may_begin = |application: &&ApplicationId| match open {
            Open::ToAll => true,
            Open::ToOthers => self.running_of(application) == 0,
            Open::From(_) | Open::No => false,
        };
        let had = |application: &&ApplicationId| {
            let last = self.had.get(*application).copied().unwrap_or_default();
            (self.running_of(application), last)
        };
        waiting.iter().filter(may_begin).min_by_key(had).cloned()
    }

    /// The number of the next one that [begins](Self::begin).
    pub(crate) fn upcoming(&self) -> u64 {
        self.turn + 1
    }

    /// One of this application begins; the number under which it [ends](Self::end).
    pub(crate) fn begin(&mut self, application: &ApplicationId, now: Instant) -> u64 {
        self.turn = self.upcoming();
        self.had.insert(application.clone(), self.turn);
        let running = Running {
            application: application.clone(),
            since: now,
        };
        self.running.insert(self.turn, running);
        self.turn
    }

    /// It has ended.
    pub(crate) fn end(&mut self, number: u64) {
        self.running.remove(&number);
        // Who has waited longer than all that are known is first in any case.
        while self.had.len() > MOST_REMEMBERED {
            let oldest = self.had.iter().min_by_key(|(_, turn)| **turn);
            let Some(oldest) = oldest.map(|(application, _)| application.clone()) else {
                break;
            };
            self.had.remove(&oldest);
        }
    }

    fn running_of(&self, application: &ApplicationId) -> usize {
        let all = self.running.values();
        all.filter(|it| it.application == *application).count()
    }
}

/// Applications whose last turn is known.
const MOST_REMEMBERED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(name: &str) -> ApplicationId {
        ApplicationId::new(name).expect("valid")
    }

    fn turns(ordinary: usize, most: usize) -> Turns {
        Turns::new(Places {
            ordinary,
            most,
            slow_after: 5 * SECOND,
        })
    }

    #[test]
    fn applications_take_turns() {
        let (mut turns, now) = (turns(1, 1), Instant::now());
        let waiting = [id("a"), id("b"), id("c")];
        let mut order = Vec::new();
        for _ in 0..6 {
            let next = turns.next(&waiting, now).expect("a place");
            let number = turns.begin(&next, now);
            assert_eq!(turns.next(&waiting, now), None);
            turns.end(number);
            order.push(next.to_string());
        }
        assert_eq!(order.concat(), "abcabc");
        // A new one has waited longest.
        let waiting = [id("a"), id("b"), id("d")];
        assert_eq!(turns.next(&waiting, now), Some(id("d")));
    }

    #[test]
    fn others_begin_beside_a_slow_one() {
        let (mut turns, start) = (turns(1, 3), Instant::now());
        let waiting = [id("a"), id("b"), id("c"), id("d")];
        let endless = turns.begin(&id("a"), start);
        assert_eq!(turns.open(start), Open::From(start + 5 * SECOND));
        assert_eq!(turns.next(&waiting, start), None);
        let slow = start + 5 * SECOND;
        assert_eq!(turns.next(&waiting[..1], slow), None, "it has one running");
        assert_eq!(turns.next(&waiting, slow), Some(id("b")));
        let second = turns.begin(&id("b"), slow);
        // The next has to wait until that one is slow or has ended.
        assert_eq!(turns.open(slow), Open::From(slow + 5 * SECOND));
        turns.end(second);
        assert_eq!(turns.next(&waiting, slow), Some(id("c")));
        turns.begin(&id("b"), slow);
        turns.begin(&id("c"), slow);
        assert_eq!(turns.open(slow + 60 * SECOND), Open::No);
        turns.end(endless);
        assert_eq!(turns.next(&waiting, slow + 60 * SECOND), Some(id("d")));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut turns, now) = (turns(1, 1), Instant::now());
        for at in 0..2 * MOST_REMEMBERED {
            let number = turns.begin(&id(&format!("a{at}")), now);
            turns.end(number);
        }
        assert_eq!(turns.had.len(), MOST_REMEMBERED);
    }
}
