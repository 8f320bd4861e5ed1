//! A dispatcher in another process, as a front end sees it.

use std::{
    collections::hash_map::RandomState,
    future::Future,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard, RwLock};
use sextant_answers::{Caches, InputsDigest};
use sextant_metadata::{Leader, MetadataStore};
use sextant_rpc::{Answer, CacheHit, Dispatch, Query, QueryError, Timings};
use sextant_types::{Code, NamedTensor, Route, Signature, Tensor, Variant, VariantId};
use tokio::sync::oneshot;

use self::{
    catalog::{Catalog, Serving},
    entry::{Entry, QueryOutcome},
    flights::{Flights, Seat},
    kept::Lookup,
    state::State,
};
use super::Connector;
use crate::link::Clock;

mod catalog;
mod entry;
mod flights;
mod follow;
mod kept;
mod state;

/// How a front end keeps its links and its queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontOptions {
    /// A query without a latency target is answered or refused within this time. A query with a target is answered or
    /// refused within this time after its target.
    pub longest: Duration,
    /// Longest time for which a query waits for a leading dispatcher. It does not wait longer than its latency target.
    pub leader_wait: Duration,
    /// While no dispatcher leads, queries beyond this number are refused at once.
    pub max_waiting: usize,
    /// The inputs and outputs of a query travel through the dispatcher if neither take more bytes than this.
    pub inline_bytes: u64,
    /// Largest number of bytes of cached answers, of all applications together, to queries whose inputs stay in this
    /// process.
    pub max_cache_bytes: u64,
    /// How often a query is asked again if its placement was lost, together with the dispatcher that would place it
    /// again.
    pub most_askings: u32,
    /// Time for which the front end keeps what a metadata store lacks after it restarted empty.
    pub grace: Duration,
    /// Time between two signs of life on the link to the dispatcher.
    pub beat: Duration,
    /// A peer that is silent for this long, while this process listens, is lost.
    pub silence: Duration,
    /// The shortest and the longest pause between two attempts to open a link.
    pub back_off: (Duration, Duration),
}

impl Default for FrontOptions {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(60),
            leader_wait: Duration::from_secs(10),
            max_waiting: 10_000,
            inline_bytes: 8 << 10,
            max_cache_bytes: 256 << 20,
            most_askings: 3,
            grace: sextant_fleet::GRACE,
            beat: Duration::from_millis(50),
            silence: Duration::from_secs(1),
            back_off: (Duration::from_millis(50), Duration::from_secs(2)),
        }
    }
}

/// Answers queries through a dispatcher and workers in other processes. [`run`](Self::run) must be running.
pub struct FrontEnd {
    options: FrontOptions,
    clock: Clock,
    catalog: ArcSwap<Catalog>,
    serving: RwLock<Serving>,
    caches: Caches,
    flights: Flights,
    queries: AtomicU64,
    state: Mutex<State>,
}

impl FrontEnd {
    /// A front end without links.
    pub fn new(options: FrontOptions, clock: Clock) -> Arc<Self> {
        let holder = random();
        Arc::new(Self {
            options,
            clock,
            catalog: ArcSwap::default(),
            serving: RwLock::default(),
            caches: Caches::default(),
            flights: Flights::default(),
            queries: AtomicU64::new(0),
            state: Mutex::new(State::new(options, clock, holder)),
        })
    }

    /// Follows the metadata store: keeps a link to the leading dispatcher and one to the mailbox of every worker that
    /// has an endpoint, until `shutdown`. Then all queries are answered.
    pub async fn run(
        self: Arc<Self>,
        connector: Arc<dyn Connector>,
        metadata: Arc<dyn MetadataStore>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        tokio::select! {
            () = shutdown => {}
            () = follow::follow(&self, connector, metadata) => {}
        }
        let settled = self.state().close();
        settled.into_iter().for_each(entry::Settlement::give);
    }

    /// The dispatcher that now takes this front end's queries; `None`: they wait.
    pub fn leader(&self) -> Option<Leader> {
        self.state().leader().cloned()
    }

    /// Number of queries without an answer.
    pub fn waiting(&self) -> usize {
        self.state().waiting()
    }

    fn find(&self, route: &Route) -> Result<Arc<Variant>, QueryError> {
        self.catalog.load().find(route).map(Arc::clone)
    }

    /// The cached answers to inputs that stay in this process, and the query's seat if it is the first of equal
    /// queries; neither if its application caches no answers.
    async fn look_up(&self, asked: &Variant, query: &Query) -> (Option<Lookup>, Option<Seat<'_>>) {
        let Some(cache) = self.caches.of(&asked.application) else {
            return (None, None);
        };
        let digest = InputsDigest::new(&query.inputs);
        let look = || {
            let catalog = self.catalog.load();
            let variants = catalog.cached(&asked.application).iter();
            Lookup::new(Arc::clone(&cache), variants, digest)
        };
        let lookup = look();
        if !lookup.is_empty() {
            return (Some(lookup), None);
        }
        let seat = self.flights.join(query, digest).await;
        match seat.is_first() {
            true => (Some(lookup), Some(seat)),
            false => (Some(look()), None),
        }
    }

    /// Caches a worker's answer, or compares it with the cached one.
    fn learn(&self, lookup: &Lookup, ran: &QueryOutcome) {
        let QueryOutcome::There {
            assignment,
            outputs,
            ..
        } = ran
        else {
            return;
        };
        let catalog = self.catalog.load();
        let variant = catalog.variant(&assignment.variant);
        // A variant that was replaced meanwhile is a different one.
        if let Some(variant) = variant.filter(|it| Some(it.artefact) == assignment.file) {
            lookup.learn(variant, &outputs.outputs);
        }
    }

    /// The answer from the cache.
    fn compose_kept(
        &self,
        (here, lookup): (CacheHit, Option<&Lookup>),
        (asked, rows): (&Variant, u32),
        (total, is_in_time): (Duration, bool),
    ) -> Result<Answer, QueryError> {
        let kept = lookup.and_then(|lookup| lookup.answer(&here.variant));
        let lost = || QueryError::new(Code::Internal, "the front end has not kept the answer");
        let kept = kept.ok_or_else(lost)?;
        Ok(Answer {
            outputs: self.named((asked, &here.variant), kept.outputs().to_vec()),
            variant: here.variant,
            model: here.model,
            rows,
            timings: Timings {
                total_us: us(total),
                ..Timings::default()
            },
            cost_usd: 0.0,
            targets_met: here.suits && is_in_time,
            explanation: here.explanation,
        })
    }

    /// Outputs with the names in the variant's signature.
    fn named(
        &self,
        (asked, variant): (&Variant, &VariantId),
        outputs: Vec<Tensor>,
    ) -> Vec<NamedTensor> {
        let catalog = self.catalog.load();
        // If the variant was retired meanwhile, it had the same outputs as the others.
        let signature = catalog
            .variant(variant)
            .map_or(&asked.signature, |variant| &variant.signature);
        let names = signature.outputs.iter().map(|spec| spec.name.clone());
        let outputs = names.zip(outputs);
        outputs
            .map(|(name, tensor)| NamedTensor { name, tensor })
            .collect()
    }

    fn compose(
        &self,
        (ran, lookup): (QueryOutcome, Option<&Lookup>),
        (asked, rows): (&Variant, u32),
        arrived: std::time::Instant,
        latency_ms: Option<f64>,
    ) -> Result<Answer, QueryError> {
        let total = self.clock.now().saturating_duration_since(arrived);
        let is_in_time = latency_ms.is_none_or(|most| total.as_secs_f64() * 1e3 <= most);
        let (assignment, ran, sent) = match ran {
            QueryOutcome::There {
                assignment,
                outputs,
                sent,
            } => (*assignment, outputs, sent),
            QueryOutcome::Answered(mut answer) => {
                answer.timings.total_us = us(total);
                answer.targets_met &= is_in_time;
                return Ok(*answer);
            }
            QueryOutcome::Kept(here) => {
                return self.compose_kept((*here, lookup), (asked, rows), (total, is_in_time));
            }
        };
        let outputs = self.named((asked, &assignment.variant), ran.outputs);
        let placed = sent.saturating_duration_since(arrived);
        let queue_us = us(placed) + ran.queue_us;
        let timings = Timings {
            queue_us,
            load_us: if assignment.load { queue_us } else { 0.0 },
            compute_us: ran.compute_us,
            total_us: us(total),
            batch_rows: ran.batch_rows,
        };
        Ok(Answer {
            variant: assignment.variant,
            model: assignment.model,
            outputs,
            rows,
            timings,
            cost_usd: timings.cost_usd(rows, assignment.second_usd),
            targets_met: assignment.suits && is_in_time,
            explanation: assignment.explanation,
        })
    }

    /// Whether inputs and outputs are small enough to travel through the dispatcher.
    fn is_inline(&self, signature: &Signature, inputs: &[NamedTensor], rows: u32) -> bool {
        let most = self.options.inline_bytes;
        let given = inputs.iter().map(|input| input.tensor.byte_len() as u64);
        let outputs = signature.output_bytes(rows);
        given.sum::<u64>() <= most && outputs.is_some_and(|bytes| bytes <= most)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[async_trait]
impl Dispatch for FrontEnd {
    async fn query(&self, mut query: Query) -> Result<Answer, QueryError> {
        query
            .targets
            .validate()
            .map_err(|error| QueryError::new(Code::InvalidTarget, error.to_string()))?;
        let asked = self.find(&query.route)?;
        let (inputs, rows) = asked
            .signature
            .bind(std::mem::take(&mut query.inputs))
            .map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        query.inputs = inputs;
        let (arrived, latency_ms) = (query.arrived, query.targets.latency_ms);
        let (reply, replied) = oneshot::channel();
        let dims = asked.signature.dims(&query.inputs);
        let inline = self.is_inline(&asked.signature, &query.inputs, rows);
        let (lookup, seat) = match inline {
            true => (None, None),
            false => self.look_up(&asked, &query).await,
        };
        let kept = lookup.as_ref().map(Lookup::offers).unwrap_or_default();
        let entry = Entry::new(query, (rows, dims), inline, reply).with(kept);
        let number = self.queries.fetch_add(1, Ordering::Relaxed);
        self.state().add(number, entry)?;
        let mut waiting = WaitGuard {
            front: self,
            query: number,
            waits: true,
        };
        let reply = replied.await;
        waiting.waits = false;
        let lost = || QueryError::new(Code::Internal, "the front end lost the query");
        let ran = reply.map_err(|_| lost()).and_then(|ran| ran);
        if let (Some(lookup), Ok(ran)) = (&lookup, &ran) {
            self.learn(lookup, ran);
        }
        if let Some(seat) = seat {
            seat.end();
        }
        let ran = (ran?, lookup.as_ref());
        self.compose(ran, (&asked, rows), arrived, latency_ms)
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Ok(self.find(route)?.signature.clone())
    }

    fn utilization(&self) -> f64 {
        self.state().utilization()
    }

    fn has_workers(&self) -> bool {
        self.serving.read().has_workers()
    }

    fn is_ready(&self, route: &Route) -> bool {
        let serving = self.serving.read();
        self.catalog.load().is_ready(route, &serving)
    }
}

/// Gives a query up when its caller drops the call.
struct WaitGuard<'a> {
    front: &'a FrontEnd,
    query: u64,
    waits: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.front.state().give_up(self.query);
        }
    }
}

/// An unpredictable number: hashers have random keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
