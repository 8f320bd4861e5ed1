//! A load from beginning to end.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use http::Uri;
use parking_lot::Mutex;
use tokio::{runtime, sync::mpsc, time::Instant};

use crate::{
    Arrivals, Endpoint, Error, Message, Progress, Tally, closed,
    connection::{Broken, Connection, PreparedRequest},
    open::{self, Pool},
    reply::Outcome,
    tally::Times,
};

/// From when threads are started until queries are due.
const START: Duration = Duration::from_millis(20);

/// When the queries of a stream are sent.
#[derive(Debug, Clone)]
pub enum Pace {
    /// Each of so many connections asks again as soon as it has its answer.
    Closed {
        /// Connections, each with one query under way.
        concurrency: usize,
    },
    /// When they are due.
    Open(Arrivals),
}

/// The queries of one application.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its name in errors.
    pub name: String,
    /// Where they are posted, from the server's root.
    pub path: String,
    /// What is sent, in turns.
    pub messages: Vec<Message>,
    /// When.
    pub pace: Pace,
    /// Whether answers are those of queries, which name the variant that answered.
    pub reads_answers: bool,
    /// How long after it was due an answer is in time, ms.
    pub latency_ms: Option<f64>,
}

/// What to send, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sent side by side.
    pub streams: Vec<Stream>,
    /// Sent before anything is counted.
    pub warm_up: Duration,
    /// Then counted.
    pub duration: Duration,
    /// Threads that send, each with a share of every stream.
    pub threads: usize,
    /// Most connections that the open loops have open.
    pub most_connections: usize,
    /// A query without an answer so long after it was due is given up.
    pub timeout: Duration,
    /// Decides arrivals that are drawn.
    pub seed: u64,
}

/// What one thread sends of a stream.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) endpoint: Arc<Endpoint>,
    prepared: Vec<PreparedRequest>,
    next: AtomicUsize,
    pub(crate) clock: Clock,
    pub(crate) timeout: Duration,
    progress: Arc<Progress>,
    tally: Mutex<Tally>,
    reads_answers: bool,
    limit: Option<Duration>,
}

/// When what counts is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) begin: Instant,
    counted_from: Instant,
    pub(crate) end: Instant,
}

/// Sends everything and returns what became of each stream, and for how long that was counted.
///
/// # Errors
/// The plan makes no sense, or nobody listens when it begins. What breaks later is counted.
pub fn run(
    endpoint: &Endpoint,
    plan: &Plan,
    progress: &Arc<Progress>,
) -> Result<(Vec<Tally>, Duration), Error> {
    plan.check()?;
    reach(endpoint)?;
    let clock = Clock::new(plan);
    let endpoint = Arc::new(endpoint.clone());
    let mut threads = Vec::new();
    for share in 0..plan.threads {
        let lanes = plan.streams.iter();
        let lanes = lanes.map(|stream| Lane::new(&endpoint, stream, plan, clock, progress));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let plan = plan.clone();
        let thread = thread::Builder::new().name(format!("bench-{share}"));
        let thread = thread.spawn(move || send(&plan, share, &lanes));
        threads.push(thread.map_err(Error::Start)?);
    }
    let mut tallies = vec![Tally::default(); plan.streams.len()];
    for thread in threads {
        let shares = thread.join().expect("no thread panics");
        for (tally, share) in tallies.iter_mut().zip(shares.map_err(Error::Start)?) {
            tally.add(&share);
        }
    }
    let counted = match progress.stopped_at() {
        Some(stopped) => clock.counted_until(stopped),
        None => plan.duration,
    };
    Ok((tallies, counted))
}

/// Opens one connection, so that an absent server is told before anything is sent.
fn reach(endpoint: &Endpoint) -> Result<(), Error> {
    let runtime = current_thread().map_err(Error::Start)?;
    let opened = runtime.block_on(Connection::open(endpoint));
    opened
        .map(drop)
        .map_err(|source| endpoint.unreachable(source))
}

fn current_thread() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// One thread's share of all streams, to its end.
fn send(plan: &Plan, share: usize, lanes: &[Arc<Lane>]) -> io::Result<Vec<Tally>> {
    let runtime = current_thread()?;
    runtime.block_on(async {
        // Every query holds a sender: there is nothing to receive once all have ended.
        let (under_way, mut all_ended) = mpsc::channel::<()>(1);
        let pool = Arc::new(Pool::new(plan.most_connections.div_ceil(plan.threads)));
        let mut open_loops = Vec::new();
        for ((number, stream), lane) in (1..).zip(&plan.streams).zip(lanes) {
            let lane = Arc::clone(lane);
            match &stream.pace {
                Pace::Closed { concurrency } => {
                    let connections = share_of(*concurrency, plan.threads, share);
                    for _ in 0..connections {
                        let (lane, ended) = (Arc::clone(&lane), under_way.clone());
                        tokio::spawn(async move {
                            closed::run(&lane).await;
                            drop(ended);
                        });
                    }
                }
                Pace::Open(arrivals) => {
                    let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(number);
                    let times = arrivals.times(seed).skip(share).step_by(plan.threads);
                    let (pool, ended) = (Arc::clone(&pool), under_way.clone());
                    open_loops.push(tokio::spawn(open::run(lane, times, pool, ended)));
                }
            }
        }
        drop(under_way);
        for open_loop in open_loops {
            open_loop.await.map_err(io::Error::other)??;
        }
        all_ended.recv().await;
        Ok(lanes.iter().map(|lane| lane.tally.lock().clone()).collect())
    })
}

/// How many of `whole` fall to one of `shares`.
fn share_of(whole: usize, shares: usize, share: usize) -> usize {
    whole / shares + usize::from(share < whole % shares)
}

// === impl Plan ===

impl Plan {
    fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Plan(reason));
        if self.threads == 0 || self.most_connections == 0 || self.duration.is_zero() {
            return refuse("threads, connections and the duration must be above 0".to_owned());
        }
        let times = [START, self.warm_up, self.duration, self.timeout];
        let end = times
            .iter()
            .try_fold(Instant::now(), |at, time| at.checked_add(*time));
        if end.is_none() {
            return refuse("it would end later than a clock can tell".to_owned());
        }
        for stream in &self.streams {
            let name = &stream.name;
            let is_possible = match &stream.pace {
                Pace::Closed { concurrency } => *concurrency > 0,
                Pace::Open(Arrivals::Drawn { rate, cv }) => {
                    rate.is_finite() && *rate > 0.0 && cv.is_finite() && *cv >= 0.0
                }
                Pace::Open(Arrivals::Recorded(_)) => true,
            };
            if !is_possible {
                return refuse(format!("`{name}`: rates and connections must be above 0"));
            }
            if stream
                .latency_ms
                .is_some_and(|ms| !(ms.is_finite() && ms > 0.0))
            {
                return refuse(format!("`{name}`: the latency target must be above 0"));
            }
            if stream.messages.is_empty() {
                return refuse(format!("`{name}`: there is nothing to send"));
            }
        }
        Ok(())
    }
}

// === impl Clock ===

impl Clock {
    fn new(plan: &Plan) -> Self {
        let begin = Instant::now() + START;
        let counted_from = begin + plan.warm_up;
        Self {
            begin,
            counted_from,
            end: counted_from + plan.duration,
        }
    }

    fn counted_until(&self, now: Instant) -> Duration {
        now.min(self.end)
            .saturating_duration_since(self.counted_from)
    }
}

// === impl Lane ===

impl Lane {
    fn new(
        endpoint: &Arc<Endpoint>,
        stream: &Stream,
        plan: &Plan,
        clock: Clock,
        progress: &Arc<Progress>,
    ) -> Result<Arc<Self>, Error> {
        let uri: Uri = endpoint.uri(&stream.path)?;
        let prepared = stream.messages.iter();
        let prepared = prepared.map(|message| PreparedRequest::new(endpoint, &uri, message));
        Ok(Arc::new(Self {
            endpoint: Arc::clone(endpoint),
            prepared: prepared.collect(),
            next: AtomicUsize::new(0),
            clock,
            timeout: plan.timeout,
            progress: Arc::clone(progress),
            tally: Mutex::default(),
            reads_answers: stream.reads_answers,
            limit: stream
                .latency_ms
                .map(|ms| Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)),
        }))
    }

    /// Whether no further query is sent at `now`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.clock.end || self.progress.is_stopped()
    }

    /// Counts a query that is taken up `now`.
    pub(crate) fn take_up(&self, due: Instant, now: Instant) {
        self.progress.count_sent();
        if due >= self.clock.counted_from {
            self.tally.lock().due(now.saturating_duration_since(due));
        }
    }

    /// Sends the next message over `connection`, or over a new one, and counts what becomes of it. Returns the
    /// connection where it can be used again.
    pub(crate) async fn ask(
        &self,
        connection: Option<Connection>,
        due: Instant,
    ) -> Result<Option<Connection>, Broken> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.prepared.len();
        if let Some(connection) = connection {
            match self.exchange(connection, turn, due).await {
                Err(Broken::Idle) => {}
                Err(Broken::Lost) => return Err(self.broke(due, "connection")),
                answered => return answered,
            }
        }
        let Ok(connection) = Connection::open(&self.endpoint).await else {
            return Err(self.broke(due, "connect"));
        };
        let answered = self.exchange(connection, turn, due).await;
        answered.map_err(|_| self.broke(due, "connection"))
    }

    /// Sends one and counts its answer.
    async fn exchange(
        &self,
        mut connection: Connection,
        turn: usize,
        due: Instant,
    ) -> Result<Option<Connection>, Broken> {
        let sent = Instant::now();
        let reply = connection.send(&self.prepared[turn]).await?;
        let ended = Instant::now();
        let outcome = reply.outcome(self.reads_answers);
        let is_answered = matches!(outcome, Outcome::Answered { .. });
        self.progress.count_end(is_answered);
        if due >= self.clock.counted_from {
            let times = Times { due, sent, ended };
            self.tally.lock().end(times, &outcome, self.limit);
        }
        Ok(connection.is_usable().then_some(connection))
    }

    /// Counts a query that has no answer.
    pub(crate) fn broke(&self, due: Instant, kind: &'static str) -> Broken {
        self.progress.count_end(false);
        if due >= self.clock.counted_from {
            self.tally.lock().broke(kind);
        }
        Broken::Lost
    }
}
