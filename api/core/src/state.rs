//! The state that handlers share.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{body::Body, http::HeaderValue};
use sextant_metadata::MetadataStore;
use sextant_objects::ObjectStore;
use sextant_pipeline::Pipelines;
use sextant_registry::Registry;
use sextant_rpc::{Answer, DispatcherClient, ExaminerClient, Notify, Offline, PublisherClient};
use sextant_storage::Storage;
use sextant_types::{ApplicationId, Code, Metric, ModelId, Route, Targets, WorkerId};
use tokio::{
    sync::{Mutex, SemaphorePermit},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    ApiParts, Limits, Metrics, WorkerPart,
    auth::{self, Caller, Keyring},
    body::{self, BodyLimit, ReservedBody},
    changes::Changes,
    classification::Classes,
    directory::Directory,
    explanations::Explanations,
    failures::{self, Failures},
    feed::Feed,
    holds::Holds,
    intake::Intake,
    logging::Logging,
    pipelines,
    places::{Places, Share},
    problem::Problem,
    query::split::Splitting,
    regions::Regions,
    room::Room,
    sessions::Sessions,
    spending::Spending,
    targets::TargetsBody,
    tokens::Tokens,
};

/// Most bytes of memory that a byte of a document takes: the shortest element of a list has two bytes, and takes 64 as
/// a node of a tree.
const DOCUMENT_TIMES: usize = 32;

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    parts: ApiParts,
    pipelines: Arc<Pipelines>,
    metrics: Metrics,
    directory: Directory,
    /// Held while the directory is read, so that an older reading never replaces a newer one.
    reading: Mutex<()>,
    keyring: Keyring,
    places: Places,
    room: Room,
    changes: Changes,
    classes: Classes,
    decisions: Feed,
    explanations: Explanations,
    failures: Failures,
    tokens: Tokens,
    intake: Intake,
    spending: Spending,
    sessions: Sessions,
    regions: Regions,
    holds: Holds,
    draining: CancellationToken,
}

impl ApiState {
    /// Origins whose scripts may send requests.
    pub fn origins(&self) -> &[HeaderValue] {
        &self.0.parts.origins
    }

    /// The state made of `parts`.
    pub fn new(mut parts: ApiParts) -> Self {
        let places = Places::new(parts.limits.max_concurrent_queries);
        let limits = &parts.limits;
        let least = limits.max_body_bytes.saturating_mul(2);
        let room = Room::new(limits.max_body_bytes_in_flight.max(least));
        let beneath = Splitting::over(Arc::clone(&parts.dispatcher));
        let pipelines = pipelines::over(beneath, &room, &mut parts);
        let metrics = Metrics::new(std::mem::take(&mut parts.metrics));
        let rates = Arc::clone(&parts.rates);
        let keyring = Keyring::new(rates, parts.auth.max_concurrent_per_key);
        let decisions = Feed::new(Arc::clone(&parts.metadata));
        let regions = Regions::new(parts.shared_memory);
        Self(Arc::new(Shared {
            parts,
            pipelines,
            metrics,
            directory: Directory::default(),
            reading: Mutex::default(),
            keyring,
            places,
            room,
            changes: Changes::default(),
            classes: Classes::default(),
            decisions,
            explanations: Explanations::default(),
            failures: Failures::default(),
            tokens: Tokens::default(),
            intake: Intake::default(),
            spending: Spending::default(),
            sessions: Sessions::default(),
            regions,
            holds: Holds::default(),
            draining: CancellationToken::new(),
        }))
    }

    /// Metrics of the process.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// From now on `/health/ready` answers 503, and streams end.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Whether the service stops.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// A token that is cancelled when the service stops.
    pub fn draining(&self) -> CancellationToken {
        self.0.draining.clone()
    }

    /// Checks whether requests are accepted; the refusal says why not.
    pub fn check_ready(&self) -> Result<(), Problem> {
        if self.is_draining() {
            let detail = "the service is shutting down";
            return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000));
        }
        let unready = |why: String| Problem::new(Code::Unavailable, why).retry_after_ms(1000);
        (self.0.parts.readiness)().map_err(unready)?;
        match self.dispatcher().has_workers() {
            true => Ok(()),
            false => {
                let why = "there is no worker that could answer queries, and no pool that brings one: start a worker";
                Err(unready(why.to_owned()))
            }
        }
    }

    /// The configuration of keys.
    pub fn auth(&self) -> &auth::Config {
        &self.0.parts.auth
    }

    /// All valid keys.
    pub fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    /// The dispatcher that answers queries, also those to pipelines.
    pub fn dispatcher(&self) -> &DispatcherClient {
        &self.0.parts.dispatcher
    }

    /// The pipelines.
    pub fn pipelines(&self) -> &Pipelines {
        &self.0.pipelines
    }

    /// Answers the offline jobs of pipelines.
    pub fn offline(&self) -> Arc<dyn Offline> {
        Arc::clone(&self.0.pipelines) as _
    }

    /// Whether a route names a pipeline.
    pub(crate) fn is_pipeline(&self, route: &Route) -> bool {
        matches!(route, Route::Application(id) if self.pipelines().get(id).is_some())
    }

    /// The client that scores pipelines.
    pub fn examiner(&self) -> &ExaminerClient {
        &self.0.parts.examiner
    }

    /// The client that deletes models.
    pub fn publisher(&self) -> &PublisherClient {
        &self.0.parts.publisher
    }

    /// The limits of requests.
    pub fn limits(&self) -> &Limits {
        &self.0.parts.limits
    }

    /// The running changes.
    pub fn changes(&self) -> &Changes {
        &self.0.changes
    }

    /// The classes of models' scored outputs.
    pub fn classes(&self) -> &Classes {
        &self.0.classes
    }

    /// The present costs of applications.
    pub fn spending(&self) -> &Spending {
        &self.0.spending
    }

    /// Makes and reads the tokens of answers.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Writes feedback.
    pub fn intake(&self) -> &Intake {
        &self.0.intake
    }

    /// Notifies webhooks.
    pub fn notifier(&self) -> Option<&dyn Notify> {
        self.0.parts.notifier.as_deref()
    }

    /// The directory of applications and models for queries.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// The sessions of the pages.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Explanations of queries: of those that asked for one, and of some slow and refused ones.
    pub fn explanations(&self) -> &Explanations {
        &self.0.explanations
    }

    /// Queries in flight, by application; `None` for those whose application is not known.
    pub(crate) fn in_flight_of(&self) -> BTreeMap<Option<ApplicationId>, usize> {
        let idle = self.0.directory.applications().into_iter();
        let idle = idle.map(|id| (Some(id), 0));
        idle.chain(self.0.places.by_application()).collect()
    }

    /// The whole body of a request that is not an upload, within the limits.
    pub async fn collect(&self, body: Body) -> Result<ReservedBody, Problem> {
        let limits = self.limits();
        let limit = BodyLimit {
            max_bytes: limits.max_body_bytes,
            timeout: limits.body_timeout,
            room: &self.0.room,
        };
        body::collect(body, limit).await
    }

    /// The same for a document that is not a query: the memory of its tree is counted as well.
    pub async fn collect_document(&self, body: Body) -> Result<ReservedBody, Problem> {
        let mut held = self.collect(body).await?;
        let bytes = held.bytes().len();
        held.taken().grow(DOCUMENT_TIMES * bytes)?;
        Ok(held)
    }

    /// The room in which the bytes of requests are counted, and those of what is made of them.
    pub fn room(&self) -> &Room {
        &self.0.room
    }

    /// Whether gRPC answers always carry tensors in `raw_output_contents`.
    pub fn answers_raw(&self) -> bool {
        self.0.parts.raw_answers
    }

    /// The registered regions of shared memory.
    pub fn regions(&self) -> &Regions {
        &self.0.regions
    }

    /// The names that stay loaded.
    pub fn holds(&self) -> &Holds {
        &self.0.holds
    }

    /// The settings of the log.
    pub fn logging(&self) -> Result<&Logging, Problem> {
        self.0.parts.logging.as_ref().ok_or_else(|| {
            let detail = "what is logged is not for this front end to say";
            Problem::new(Code::RouteNotFound, detail)
        })
    }

    /// A place among the queries in flight.
    pub fn admit(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.0.places.take()
    }

    /// Counts a place for the application of a query.
    pub fn admit_for(&self, route: &Route) -> Result<Share<'_>, Problem> {
        self.0.places.count(self.application_of(route))
    }

    /// Applications, models, variants and jobs.
    pub fn registry(&self) -> &Registry {
        &self.0.parts.registry
    }

    /// Uploaded files.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.parts.objects
    }

    /// Reports what uses the registry and the artefact store, and releases what nothing uses.
    pub fn storage(&self) -> &Storage {
        &self.0.parts.storage
    }

    /// Instances and workers.
    pub fn metadata(&self) -> &dyn MetadataStore {
        self.0.parts.metadata.as_ref()
    }

    /// The decisions of the autoscaler, as they are made.
    pub fn decisions(&self) -> &Feed {
        &self.0.decisions
    }

    /// The metric of an application; `None` if the application is not known.
    pub fn metric(&self, application: &ApplicationId) -> Option<Metric> {
        self.0.directory.metric(application)
    }

    /// Whether the key of a caller is still valid.
    pub fn still_knows(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Anyone | Caller::Administrator => true,
            Caller::Key(key) => self.keyring().holds(key),
        }
    }

    /// See [`ApiParts::estimate_factor`].
    pub fn estimate_factor(&self) -> f64 {
        self.0.parts.estimate_factor
    }

    /// The worker of that name.
    pub fn worker(&self, name: &WorkerId) -> Result<WorkerPart, Problem> {
        let found = self.0.parts.workers.get(name);
        found.ok_or_else(|| Self::no_worker(name))
    }

    /// The refusal of a request for a worker that does not exist.
    pub fn no_worker(name: &WorkerId) -> Problem {
        let detail = format!("there is no worker `{name}`");
        Problem::new(Code::WorkerNotFound, detail)
    }

    /// Queries in flight.
    pub fn in_flight(&self) -> usize {
        self.0.places.taken()
    }

    /// Reads the directory and the keys again. A serving process calls it at its start and from time to time, because
    /// other processes make changes.
    pub async fn refresh(&self) -> Result<(), sextant_registry::Error> {
        self.refresh_keys().await?;
        let _reading = self.0.reading.lock().await;
        let gone = self.0.directory.read(self.registry()).await?;
        self.metrics().forget_deleted(&gone, &self.0.directory);
        self.tokens().follow(self).await?;
        pipelines::load::refresh(self).await
    }

    /// Reads a pipeline again after a change, and everything else that has changed.
    pub async fn refresh_pipeline(
        &self,
        id: &ApplicationId,
    ) -> Result<(), sextant_registry::Error> {
        self.refresh_application(id).await?;
        let _reading = self.0.reading.lock().await;
        pipelines::load::refresh(self).await
    }

    /// Reads one application again after a change.
    pub async fn refresh_application(
        &self,
        id: &ApplicationId,
    ) -> Result<(), sextant_registry::Error> {
        let _reading = self.0.reading.lock().await;
        let directory = &self.0.directory;
        if !directory.read_application(self.registry(), id).await? {
            let gone = std::slice::from_ref(id);
            self.metrics().forget_deleted(gone, directory);
        }
        self.tokens().follow(self).await
    }

    /// Reads one model again after a change.
    pub async fn refresh_model(&self, id: &ModelId) -> Result<(), sextant_registry::Error> {
        let _reading = self.0.reading.lock().await;
        let directory = &self.0.directory;
        if !directory.read_model(self.registry(), id).await? {
            self.metrics().forget_deleted(&[], directory);
        }
        Ok(())
    }

    /// Reads the keys again if they have changed.
    pub async fn refresh_keys(&self) -> Result<(), sextant_registry::Error> {
        match self.auth().mode {
            auth::Mode::Off => Ok(()),
            auth::Mode::Keys => self.keyring().refresh(self.registry()).await,
        }
    }

    /// The application that a route belongs to. The registry is asked only if the directory does not know it. If several
    /// applications have the name, the problem names those that the caller may see.
    pub async fn owner(&self, caller: &Caller, route: &Route) -> Result<ApplicationId, Problem> {
        use sextant_registry::Error::Ambiguous;
        let owner = self.0.directory.owner(route, self.registry()).await;
        match (owner, caller.application()) {
            (Err(Ambiguous { name, applications }), Some(own)) => {
                if !applications.contains(own) {
                    return Err(auth::not_its_own(own));
                }
                let applications = vec![own.clone()];
                Err(Ambiguous { name, applications }.into())
            }
            (owner, _) => Ok(owner?),
        }
    }

    /// Counts the outcome of a query to `route`, which is `None` if the query could not be read. The time is from the
    /// last byte of the request to the written answer.
    pub fn count_query(
        &self,
        route: Option<&Route>,
        ended: Result<(&Answer, Duration), (Code, Duration)>,
    ) {
        let directory = &self.0.directory;
        let metrics = self.metrics();
        match ended {
            Ok((answer, elapsed)) => metrics.query_answered(answer, elapsed, || match route {
                // The application has answered, so it exists.
                Some(Route::Application(id)) => Some(id.clone()),
                _ => directory.found(&Route::Model(answer.model.clone())),
            }),
            Err(failed) => {
                let found = route.and_then(|route| self.application_of(route));
                metrics.query_failed(route, found.as_ref(), failed);
                if self.0.failures.tells(failed.0, Instant::now()) {
                    failures::log(route, found.as_ref(), failed.0);
                }
            }
        }
    }

    /// Logs the number of failed queries that had no line in the log. To be called from time to time.
    pub fn sum_up_failures(&self) {
        self.0.failures.sum_up(Instant::now());
    }

    /// The application that a route belongs to, as far as it is known without asking the registry.
    pub(crate) fn application_of(&self, route: &Route) -> Option<ApplicationId> {
        match route {
            Route::Variant(id) => self.metrics().application_of(id),
            route => self.0.directory.found(route),
        }
    }

    /// The problem if the dispatcher knows nothing under `route` although it is registered: the dispatcher has not been
    /// told of it, or has lost it and will be told again.
    pub fn unannounced(&self, route: &Route) -> Option<Problem> {
        let is_registered = self.0.directory.is_registered(route);
        is_registered.then(|| {
            let detail = "what the query names is registered, and its variants are not announced to the \
                 dispatcher yet: try again, and see to it that a process with the role `variant-gen` runs";
            Problem::new(Code::Unavailable, detail).retry_after_ms(1000)
        })
    }

    /// The problem that the caller of a query to `route` gets.
    pub(crate) fn unanswered(&self, caller: &Caller, route: &Route, problem: Problem) -> Problem {
        let unannounced = is_missing(&problem).then(|| self.unannounced(route));
        unannounced
            .flatten()
            .unwrap_or_else(|| self.with_suggestion(caller, route, problem))
    }

    /// A problem; if nothing has the route's name, with the name that may have been meant, for callers who may see it.
    pub fn with_suggestion(&self, caller: &Caller, route: &Route, problem: Problem) -> Problem {
        // A key that is bound to one application learns of no others.
        if !is_missing(&problem) || caller.application().is_some() {
            return problem;
        }
        if let Route::Model(name) = route
            && let Some(forms) = self.0.directory.ambiguity(name)
        {
            return problem.adding(&format!("several applications have it: say {forms}"));
        }
        match self.0.directory.meant(route) {
            Some(name) => problem.adding(&format!("did you mean `{name}`?")),
            None => problem,
        }
    }

    /// Refuses a caller who is bound to another application than `route` belongs to.
    pub async fn check_owner(&self, caller: &Caller, route: &Route) -> Result<(), Problem> {
        if caller.application().is_none() {
            return Ok(());
        }
        caller.check(&self.owner(caller, route).await?)
    }

    /// The targets of a query, completed from a preset of the application, then from its defaults.
    pub fn targets_with(
        &self,
        route: &Route,
        preset: Option<&str>,
        body: TargetsBody,
    ) -> Result<Targets, Problem> {
        self.0.directory.targets(route, preset, body)
    }
}

/// Whether a problem says that nothing has the route's name.
fn is_missing(problem: &Problem) -> bool {
    matches!(
        problem.code(),
        Code::ApplicationNotFound | Code::ModelNotFound
    )
}
