//! Sends queries at times that do not depend on the answers, each over a connection, until it is stopped.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::outcomes::{Outcome, Tally};
use crate::demo;
use crate::http::{Connection, Response};
use crate::shell;

/// Number of clients: as many queries may wait for answers at a time. It exceeds the number of queries that come while
/// a silent worker is waited for, so that the times of queries do not shift.
const CLIENTS: u64 = 128;
/// Time that a client waits: twice the target of its query, and more than the longest time after which a silent part of
/// the fleet counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Latency target of a query, ms.
const TARGET_MS: u64 = 10_000;
/// How long a client goes on asking again when it is told to.
const PERSISTS: Duration = Duration::from_secs(120);

/// The rate and the times of queries.
#[derive(Debug, Clone, Copy)]
pub struct Arrivals {
    /// Queries a second, on average.
    pub rate: f64,
    /// Seed of the times between them.
    pub seed: u64,
}

/// The behaviour of clients.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// Whether they ask again when the service says when.
    pub asks_again: bool,
    /// The digit that an answer must contain.
    pub digit: Option<usize>,
}

/// The load in progress.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    at: SocketAddr,
    phase: &'static str,
    manners: Manners,
    body: Value,
    arrivals: Mutex<Schedule>,
    tally: Mutex<Tally>,
    stop: AtomicBool,
}

/// A Poisson process.
struct Schedule {
    rate: f64,
    state: u64,
    number: u64,
    next: Instant,
}

impl Load {
    /// Starts to send queries to the front end at `at`.
    pub fn start(
        at: SocketAddr,
        phase: &'static str,
        (arrivals, manners): (Arrivals, Manners),
    ) -> Self {
        let shared = Arc::new(Shared {
            at,
            phase,
            manners,
            body: demo::query(&json!({ "latency_ms": TARGET_MS })),
            arrivals: Mutex::new(Schedule::new(arrivals)),
            tally: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let clients = (0..CLIENTS).map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.ask_on())
        });
        Self {
            clients: clients.collect(),
            shared,
        }
    }

    /// Stops sending, waits for queries in progress, and returns all outcomes.
    pub fn finish(mut self) -> Result<Tally> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().map_err(|_| anyhow!("a client panicked"))?;
        }
        Ok(lock(&self.shared.tally).clone())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// One client.
    fn ask_on(&self) {
        loop {
            let (number, due) = lock(&self.arrivals).take();
            shell::pause(due.saturating_duration_since(Instant::now()));
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let begun = Instant::now();
            let outcome = self.ask(number);
            let now = Instant::now();
            lock(&self.tally).count(outcome, now.duration_since(begun), now);
        }
    }

    /// Sends a query and returns its final outcome.
    fn ask(&self, number: u64) -> Outcome {
        let id = format!("{}-{number}", self.phase);
        let mut body = self.body.clone();
        body["id"] = id.clone().into();
        let begun = Instant::now();
        loop {
            let response = match self.ask_once(&body) {
                Ok(response) => response,
                Err(outcome) => return outcome,
            };
            let told = response.retry_after.filter(|_| self.manners.asks_again);
            match told {
                Some(wait) if begun.elapsed() + wait < PERSISTS => {
                    lock(&self.tally).asked_again += 1;
                    shell::pause(wait);
                }
                _ => return read(&response, &id, self.manners.digit),
            }
        }
    }

    fn ask_once(&self, body: &Value) -> Result<Response, Outcome> {
        let connection = Connection::open(self.at, PATIENCE);
        let mut connection = connection.map_err(|_| Outcome::NotConnected)?;
        connection
            .post("/v1/queries", body)
            .map_err(|error| match is_timeout(&error) {
                true => Outcome::Lost,
                false => Outcome::Broken,
            })
    }
}

fn read(response: &Response, id: &str, expected: Option<usize>) -> Outcome {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    if response.status != 200 {
        return match body["code"].as_str() {
            Some(code) => Outcome::Refused(code.to_owned()),
            None => Outcome::Wrong(format!("status {} without a code", response.status)),
        };
    }
    let digit = demo::best(&body["outputs"][0]["data"]);
    match body["id"] == id && digit.is_some() && (expected.is_none() || digit == expected) {
        true => Outcome::Answered,
        false => Outcome::Wrong(format!("{digit:?} for `{}` in place of `{id}`", body["id"])),
    }
}

fn is_timeout(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let kind = error.root_cause().downcast_ref::<std::io::Error>();
    kind.is_some_and(|error| matches!(error.kind(), TimedOut | WouldBlock))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Schedule ===

impl Schedule {
    fn new(Arrivals { rate, seed }: Arrivals) -> Self {
        Self {
            rate,
            state: seed,
            number: 0,
            next: Instant::now(),
        }
    }

    /// The next query's number and when it is due.
    fn take(&mut self) -> (u64, Instant) {
        let gap = -(1.0 - self.uniform()).ln() / self.rate;
        self.next += Duration::from_secs_f64(gap);
        self.number += 1;
        (self.number, self.next)
    }

    /// SplitMix64, a number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &Value) -> Response {
        Response {
            status,
            closes: false,
            retry_after: None,
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn an_answer_to_another_query_is_wrong() {
        let mut scores = vec![0.0; 10];
        scores[demo::DIGIT] = 9.0;
        let body = json!({"id": "steady-1", "outputs": [{"data": scores}]});
        let read = |answer: &Response, id: &str| read(answer, id, Some(demo::DIGIT));
        assert_eq!(read(&answer(200, &body), "steady-1"), Outcome::Answered);
        assert!(matches!(
            read(&answer(200, &body), "steady-2"),
            Outcome::Wrong(_)
        ));
        let problem = json!({"code": "unavailable"});
        let refused = Outcome::Refused("unavailable".to_owned());
        assert_eq!(read(&answer(503, &problem), "steady-1"), refused);
        assert!(matches!(
            read(&answer(502, &json!({})), "x"),
            Outcome::Wrong(_)
        ));
    }

    #[test]
    fn times_depend_on_the_seed_alone() {
        let gaps = |seed| {
            let mut schedule = Schedule::new(Arrivals { rate: 50.0, seed });
            let begun = schedule.next;
            let mut at = || schedule.take().1.duration_since(begun);
            (0..1000).map(|_| at()).collect::<Vec<_>>()
        };
        assert_eq!(gaps(7), gaps(7));
        assert_ne!(gaps(7), gaps(8));
        let seconds = gaps(7).last().unwrap().as_secs_f64();
        assert!(
            (15.0..25.0).contains(&seconds),
            "{seconds} s for 1000 at 50/s"
        );
    }
}
