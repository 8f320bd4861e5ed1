//! Which registration begins next, and when.
//!
//! Registrations at the same time disturb each other's measurements, so there are few places, usually one. The
//! registrant (by its key) that has had no turn for the longest time is next, whatever the others have in the queue;
//! then the same holds for the applications of that registrant, so that a key gets no more for having many
//! applications. A new registrant counts as if its last turn were as long ago as the longest of those that wait or run,
//! so that registrants under ever new names do not keep the others out. A long registration would keep all others
//! waiting. So once all running registrations are slow, one of another application begins beside them, up to a number
//! that the memory allows. At that number, the registration that has exceeded its time by most is given back to the
//! queue, and goes on later after its last step. Its next time is twice as long, so that every step comes to its end. A
//! key with several places holds each for a shorter time while a key without a place waits.
//!
//! This module knows no clock: *now* is handed in.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sextant_registry::JobQueueKey;
use sextant_types::JobId;

/// How many registrations may run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// While none is slow; at least 1.
    pub(crate) ordinary: usize,
    /// If all are slow.
    pub(crate) most: usize,
    /// Time after which a registration is slow.
    pub(crate) slow_after: Duration,
}

/// The running registrations, and the last turn of each registrant and application.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Places,
    running: BTreeMap<u64, RunningJob>,
    /// The last turn of each registrant.
    registrants: LastTurns<String>,
    /// The last turn of each of their applications.
    applications: LastTurns<JobQueueKey>,
    /// By job: how often it was given back.
    given_back: BTreeMap<JobId, u32>,
    turn: u64,
}

/// The number of each last turn; a new entry has that of another.
#[derive(Debug)]
struct LastTurns<K>(BTreeMap<K, u64>);

#[derive(Debug)]
struct RunningJob {
    whose: JobQueueKey,
    job: JobId,
    since: Instant,
    /// How long it may run while others wait for its place.
    time: Duration,
    /// The same while its registrant has several places, and one of those that wait has none.
    time_of_several: Duration,
    /// Whether it is being given back.
    is_leaving: bool,
}

/// A registration may run this many times the time after which it is slow before it is given back for others.
const FIRST_TIME: u32 = 4;

/// The same for a registrant with several places, while a registrant without a place waits.
const FIRST_TIME_OF_SEVERAL: u32 = 1;

/// Most doublings of that time.
const MOST_DOUBLINGS: u32 = 16;

/// What may begin now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Open {
    /// A place is free for any registration.
    ToAll,
    /// All are slow: an application without a running registration may begin.
    ToOthers,
    /// Nothing before that moment, unless a registration ends.
    From(Instant),
    /// Nothing before a registration ends.
    No,
}

// === impl Turns ===

impl Turns {
    /// Turns before the first one.
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            running: BTreeMap::new(),
            registrants: LastTurns(BTreeMap::new()),
            applications: LastTurns(BTreeMap::new()),
            given_back: BTreeMap::new(),
            turn: 0,
        }
    }

    /// What may begin now.
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

    /// The next of those that wait. They are in the order in which they would begin without turns.
    pub(crate) fn next(&mut self, waiting: &[JobQueueKey], now: Instant) -> Option<JobQueueKey> {
        self.see(waiting);
        let open = self.open(now);
        let may_begin = |whose: &&JobQueueKey| match open {
            Open::ToAll => true,
            Open::ToOthers => self.running_of(whose) == 0,
            Open::From(_) | Open::No => false,
        };
        let had = |whose: &&JobQueueKey| {
            let registrant = &whose.registrant;
            (
                (
                    self.places_of(registrant),
                    self.registrants.turn(registrant),
                ),
                (self.running_of(whose), self.applications.turn(whose)),
            )
        };
        waiting.iter().filter(may_begin).min_by_key(had).cloned()
    }

    /// Gives new entries the longest-ago turn of those that wait or run.
    fn see(&mut self, waiting: &[JobQueueKey]) {
        let running = self.running.values().map(|it| &it.whose);
        let known: Vec<&JobQueueKey> = waiting.iter().chain(running).collect();
        let registrants = known.iter().map(|it| &it.registrant);
        self.registrants.see(registrants, self.turn);
        self.applications.see(known.iter().copied(), self.turn);
    }

    /// The number of the registration that is given back now: no place is left, somebody without a place waits, and it
    /// has used its time.
    pub(crate) fn gives_way(&mut self, waiting: &[JobQueueKey], now: Instant) -> Option<u64> {
        let is_kept_out = waiting.iter().any(|it| self.running_of(it) == 0);
        let is_leaving = self.running.values().any(|it| it.is_leaving);
        if self.open(now) != Open::No || !is_kept_out || is_leaving {
            return None;
        }
        let over = self.running.iter().filter_map(|(number, it)| {
            let over = now.checked_duration_since(it.since + self.time_of(it, waiting))?;
            Some((over, *number))
        });
        let (_, number) = over.max()?;
        // Before the leaving registration's turn counts as a new one.
        self.see(waiting);
        self.turn += 1;
        let running = self.running.get_mut(&number)?;
        running.is_leaving = true;
        *self.given_back.entry(running.job.clone()).or_default() += 1;
        // A registrant that has waited meanwhile comes first.
        self.registrants.note(&running.whose.registrant, self.turn);
        self.applications.note(&running.whose, self.turn);
        Some(number)
    }

    /// How long a registration may run while these wait for its place.
    fn time_of(&self, running: &RunningJob, waiting: &[JobQueueKey]) -> Duration {
        let has_several = self.places_of(&running.whose.registrant) > 1;
        let mut others = waiting.iter().map(|it| &it.registrant);
        match has_several && others.any(|it| self.places_of(it) == 0) {
            true => running.time_of_several,
            false => running.time,
        }
    }

    /// When something may change by itself, from now on.
    pub(crate) fn changes_at(&self, now: Instant) -> Option<Instant> {
        match self.open(now) {
            Open::From(opens) => Some(opens),
            Open::No => {
                let times = self
                    .running
                    .values()
                    .flat_map(|it| [it.time, it.time_of_several].map(|time| it.since + time));
                times.filter(|at| *at > now).min()
            }
            Open::ToAll | Open::ToOthers => None,
        }
    }

    /// The number of the next one that [begins](Self::begin).
    pub(crate) fn upcoming(&self) -> u64 {
        self.turn + 1
    }

    /// A registration begins; returns the number under which it [ends](Self::end).
    pub(crate) fn begin(&mut self, (whose, job): (JobQueueKey, &JobId), now: Instant) -> u64 {
        self.turn = self.upcoming();
        self.registrants.note(&whose.registrant, self.turn);
        self.applications.note(&whose, self.turn);
        let doublings = self.given_back.get(job).copied().unwrap_or_default();
        let doublings = doublings.min(MOST_DOUBLINGS);
        let slow_after = self.places.slow_after;
        let running = RunningJob {
            whose,
            job: job.clone(),
            since: now,
            time: slow_after.saturating_mul(FIRST_TIME << doublings),
            time_of_several: slow_after.saturating_mul(FIRST_TIME_OF_SEVERAL << doublings),
            is_leaving: false,
        };
        self.running.insert(self.turn, running);
        self.turn
    }

    /// The registration has ended, or was given back.
    pub(crate) fn end(&mut self, number: u64) {
        self.running.remove(&number);
        // Names of jobs grow with time: the oldest jobs have ended long ago.
        while self.given_back.len() > MOST_REMEMBERED {
            self.given_back.pop_first();
        }
        self.registrants.forget_oldest();
        self.applications.forget_oldest();
    }

    fn running_of(&self, whose: &JobQueueKey) -> usize {
        let all = self.running.values();
        all.filter(|it| it.whose == *whose).count()
    }

    fn places_of(&self, registrant: &str) -> usize {
        let all = self.running.values();
        all.filter(|it| it.whose.registrant == registrant).count()
    }
}

/// Most entries with a known last turn, and most jobs that were given back.
const MOST_REMEMBERED: usize = 4096;

// === impl LastTurns ===

impl<K: Ord + Clone> LastTurns<K> {
    fn turn(&self, of: &K) -> Option<u64> {
        self.0.get(of).copied()
    }

    fn note(&mut self, of: &K, turn: u64) {
        self.0.insert(of.clone(), turn);
    }

    /// Gives the new entries among these the longest-ago turn of the others; `turn` if all are new.
    fn see<'a>(&mut self, all: impl Iterator<Item = &'a K> + Clone, turn: u64)
    where
        K: 'a,
    {
        let longest = all.clone().filter_map(|it| self.turn(it)).min();
        for new in all {
            let entry = self.0.entry(new.clone());
            entry.or_insert(longest.unwrap_or(turn));
        }
    }

    fn forget_oldest(&mut self) {
        while self.0.len() > MOST_REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, turn)| **turn);
            let Some(oldest) = oldest.map(|(whose, _)| whose.clone()) else {
                break;
            };
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::ApplicationId;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An application of one and the same key.
    fn id(name: &str) -> JobQueueKey {
        of("key", name)
    }

    fn of(key: &str, application: &str) -> JobQueueKey {
        JobQueueKey {
            registrant: key.to_owned(),
            application: ApplicationId::new(application).expect("valid"),
        }
    }

    /// Begins a job of this application.
    fn begin(turns: &mut Turns, whose: &JobQueueKey, now: Instant) -> u64 {
        turns.begin((whose.clone(), &job(whose)), now)
    }

    /// The only job of an application.
    fn job(whose: &JobQueueKey) -> JobId {
        JobId::new(format!("job-of-{}", whose.application)).expect("valid")
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
            let number = begin(&mut turns, &next, now);
            assert_eq!(turns.next(&waiting, now), None);
            turns.end(number);
            order.push(next.application.to_string());
        }
        assert_eq!(order.concat(), "abcabc");
        // A new one counts as having waited as long as the one that has waited longest, and came later.
        let waiting = [id("b"), id("a"), id("d")];
        assert_eq!(turns.next(&waiting, now), Some(id("a")));
        let number = begin(&mut turns, &id("a"), now);
        turns.end(number);
        assert_eq!(turns.next(&waiting, now), Some(id("d")));
    }

    #[test]
    fn a_key_with_many_applications_has_one_turn_of_two() {
        let (mut turns, now) = (turns(1, 1), Instant::now());
        let waiting = [
            of("many", "a"),
            of("many", "b"),
            of("many", "c"),
            of("one", "z"),
        ];
        let mut order = Vec::new();
        for _ in 0..8 {
            let next = turns.next(&waiting, now).expect("a place");
            let number = begin(&mut turns, &next, now);
            turns.end(number);
            order.push(next.application.to_string());
        }
        assert_eq!(order.concat(), "azbzczaz");
    }

    #[test]
    fn a_key_with_all_places_gives_one_to_a_key_without() {
        let (mut turns, start) = (turns(1, 3), Instant::now());
        for (at, application) in (0..).zip(["a", "b", "c"]) {
            begin(
                &mut turns,
                &of("many", application),
                start + at * 5 * SECOND,
            );
        }
        let now = start + 10 * SECOND;
        let its_own = [of("many", "d")];
        assert_eq!(turns.gives_way(&its_own, now), None);
        let waiting = [of("many", "d"), of("one", "z")];
        assert_eq!(turns.changes_at(now), Some(now + 5 * SECOND));
        let first = turns.gives_way(&waiting, now).expect("the longest");
        turns.end(first);
        assert_eq!(
            turns.next(&waiting, now + 5 * SECOND),
            Some(waiting[1].clone())
        );
        begin(&mut turns, &waiting[1], now + 5 * SECOND);
        assert_eq!(
            turns.gives_way(&its_own, now + 6 * SECOND),
            None,
            "all keys have one"
        );
    }

    #[test]
    fn the_only_place_goes_to_whoever_came_while_it_was_taken() {
        let (mut turns, start) = (turns(1, 1), Instant::now());
        let (long, new) = (id("long"), id("new"));
        let number = begin(&mut turns, &long, start);
        let waiting = [long.clone(), new.clone()];
        let now = start + 20 * SECOND;
        assert_eq!(turns.gives_way(&waiting, now), Some(number));
        turns.end(number);
        assert_eq!(turns.next(&waiting, now), Some(new));
    }

    #[test]
    fn others_begin_beside_a_slow_one() {
        let (mut turns, start) = (turns(1, 3), Instant::now());
        let waiting = [id("a"), id("b"), id("c"), id("d")];
        let endless = begin(&mut turns, &id("a"), start);
        assert_eq!(turns.open(start), Open::From(start + 5 * SECOND));
        assert_eq!(turns.next(&waiting, start), None);
        let slow = start + 5 * SECOND;
        assert_eq!(turns.next(&waiting[..1], slow), None, "it has one running");
        assert_eq!(turns.next(&waiting, slow), Some(id("b")));
        let second = begin(&mut turns, &id("b"), slow);
        // The next one waits until this one is slow or has ended.
        assert_eq!(turns.open(slow), Open::From(slow + 5 * SECOND));
        turns.end(second);
        assert_eq!(turns.next(&waiting, slow), Some(id("c")));
        begin(&mut turns, &id("b"), slow);
        begin(&mut turns, &id("c"), slow);
        assert_eq!(turns.open(slow + 60 * SECOND), Open::No);
        turns.end(endless);
        let later = slow + 60 * SECOND;
        assert_eq!(turns.next(&waiting[1..], later), Some(id("d")));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut turns, now) = (turns(1, 1), Instant::now());
        for at in 0..2 * MOST_REMEMBERED {
            let number = begin(&mut turns, &id(&format!("a{at}")), now);
            turns.given_back.insert(job(&id(&format!("a{at}"))), 1);
            turns.end(number);
        }
        assert!(turns.applications.0.len() <= MOST_REMEMBERED);
        assert_eq!(turns.given_back.len(), MOST_REMEMBERED);
    }

    #[test]
    fn who_has_had_its_time_gives_way_and_gets_more_of_it() {
        let (mut turns, start) = (turns(1, 2), Instant::now());
        let (a, b, c) = (id("a"), id("b"), id("c"));
        let first = begin(&mut turns, &a, start);
        let second = begin(&mut turns, &b, start + 5 * SECOND);
        let all = [a.clone(), b.clone(), c.clone()];
        assert_eq!(
            turns.changes_at(start + 6 * SECOND),
            Some(start + 10 * SECOND)
        );
        assert_eq!(turns.gives_way(&all, start + 19 * SECOND), None);
        let now = start + 30 * SECOND;
        assert_eq!(turns.gives_way(&all[..2], now), None, "nobody is kept out");
        assert_eq!(turns.gives_way(&all, now), Some(first));
        assert_eq!(turns.gives_way(&all, now), None, "one is on its way");
        turns.end(first);
        assert_eq!(turns.next(&all, now), Some(c.clone()));
        let third = begin(&mut turns, &c, now);
        assert_eq!(turns.gives_way(&all, now), Some(second));
        turns.end(second);
        // The first one again, for twice its time; a new one does not go before it.
        let waiting = [a.clone(), id("new")];
        assert_eq!(turns.next(&waiting, now + 5 * SECOND), Some(a.clone()));
        let first = begin(&mut turns, &a, now + 5 * SECOND);
        turns.end(third);
        begin(&mut turns, &id("new"), now + 44 * SECOND);
        let all = [b];
        assert_eq!(turns.gives_way(&all, now + 44 * SECOND), None);
        assert_eq!(turns.gives_way(&all, now + 45 * SECOND), Some(first));
    }
}
