//! The layer that every request passes: it identifies the caller, checks its rights and its rate, and writes the audit
//! record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use sextant_api_core::auth::{Hash, charge, not_its_own};
use sextant_registry::{Audit, KeyScope};
use sextant_types::{ApplicationId, Code, ErrorKind, JobId, Route, time::unix_ms};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{
    Actor, AuditMark, Caller, Mode, Subject,
    repeated::AuditThrottle,
    rules::{Bound, Need, Rule, RuleBook},
};
use crate::{ApiState, body, problem::Problem, v2::grpc};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// How long the guard tries to write the audit entry of a change that does not need the registry, while the registry is
/// unreachable or full. It is longer than a server takes to restart, or another server to take over.
const AUDIT_PATIENCE: Duration = Duration::from_secs(60);
/// Most entries that go on waiting for the registry after [`AUDIT_PATIENCE`].
const MOST_WAITING: usize = 4096;
/// Pause between two attempts to write an entry.
const AUDIT_AGAIN: Duration = Duration::from_millis(200);

/// The state of the guard.
pub(crate) struct Guard {
    state: ApiState,
    rules: RuleBook,
    repeated: AuditThrottle,
    /// Number of audit entries that are not written yet.
    waiting: Arc<AtomicUsize>,
}

/// The parts of a request that the guard reads.
struct RequestContext<'a> {
    headers: &'a HeaderMap,
    uri: &'a Uri,
    /// The route's pattern.
    pattern: &'a str,
    rule: Rule,
}

/// Lets a request in or refuses it.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>().cloned() else {
        // No route matches: there is nothing to guard.
        return next.run(request).await;
    };
    let rule = guard.rules.find(request.method(), path.as_str());
    let mut headers = HeaderMap::new();
    let asked = RequestContext {
        headers: request.headers(),
        uri: request.uri(),
        pattern: path.as_str(),
        rule,
    };
    let admitted = guard.admit(&asked, &mut headers).await;
    let mut response = match admitted {
        Ok((caller, place)) => {
            if let Some(caller) = &caller {
                request.extensions_mut().insert(caller.clone());
            }
            match caller.zip(rule.audited) {
                Some((caller, action)) => {
                    let actor = Actor::new(caller.name(), action);
                    request.extensions_mut().insert(actor);
                    let state = guard.state.clone();
                    // Boxed, because otherwise the future of every request would be this large.
                    let change = Box::pin(change(guard, (caller, place), rule, request, next));
                    let made = state.changes().make(change).await;
                    made.unwrap_or_else(IntoResponse::into_response)
                }
                None => next.run(request).await,
            }
        }
        Err(problem) => {
            // A call may never end its messages, and its client reads while it sends: do not read to the end.
            if !grpc::is_call(request.headers()) {
                body::discard(&mut request.into_body().into_data_stream()).await;
            }
            problem.into_response()
        }
    };
    response.headers_mut().extend(headers);
    response
}

/// Makes a change and writes its audit entry. The caller's place is held until both are done.
async fn change(
    guard: Arc<Guard>,
    (caller, _place): (Caller, Option<OwnedSemaphorePermit>),
    rule: Rule,
    request: Request,
    next: Next,
) -> Response {
    let uri = request.uri().clone();
    let response = next.run(request).await;
    if response.extensions().get::<AuditMark>().is_some() {
        return response;
    }
    let told = outcome(&response).zip(rule.audited);
    if let Some((mut detail, action)) = told {
        if rule.need == Need::Scope(KeyScope::Query) {
            let next = guard.repeated.next(caller.name(), action, Instant::now());
            match next {
                None => return response,
                Some(0) => {}
                Some(more) => detail["not_recorded"] = more.into(),
            }
        }
        let subject = subject(&uri, &response);
        let patience = match response.status().is_success() {
            true => guard.state.auth().audit_patience.unwrap_or(AUDIT_PATIENCE),
            // A caller that is refused because the registry is unreachable gets the answer at once.
            false => Duration::ZERO,
        };
        let told = (&*subject, detail);
        guard.audit(action, &caller, told, patience).await;
    }
    response
}

/// The detail of the audit entry for a response; `None` if nothing was changed. If the service failed halfway,
/// something may have been changed, so there is an entry.
fn outcome(response: &Response) -> Option<serde_json::Value> {
    if response.status().is_success() {
        return Some(serde_json::json!({}));
    }
    let code = response.extensions().get::<Problem>()?.code();
    let unknown = matches!(code.kind(), ErrorKind::Internal | ErrorKind::Unavailable);
    unknown.then(|| serde_json::json!({ "failed": code.as_str() }))
}

// === impl Guard ===

impl Guard {
    /// A guard with the rules in `rules`.
    pub fn new(state: ApiState, rules: RuleBook) -> Self {
        Self {
            state,
            rules,
            repeated: AuditThrottle::default(),
            waiting: Arc::default(),
        }
    }

    /// Identifies the caller, where the rule needs one, and takes a place among the key's requests in flight.
    async fn admit(
        &self,
        asked: &RequestContext<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(Option<Caller>, Option<OwnedSemaphorePermit>), Problem> {
        let config = self.state.auth();
        if config.mode == Mode::Off {
            self.check_stores(asked.rule).await?;
            return Ok((Some(Caller::Anyone), None));
        }
        let need = asked.rule.need;
        if need == Need::Nothing || (need == Need::Metrics && !config.metrics) {
            return Ok((None, None));
        }
        let caller = presented(asked.headers).and_then(|key| identify(&self.state, key));
        let caller = caller.inspect_err(|_| {
            let bearer = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        })?;
        let place = match &caller {
            Caller::Key(key) => charge(key, headers).await?,
            Caller::Anyone | Caller::Administrator => None,
        };
        self.check(&caller, asked).await?;
        self.check_stores(asked.rule).await?;
        Ok((Some(caller), place))
    }

    /// Refuses a request that would change files of an artefact store that belongs to another registry.
    async fn check_stores(&self, rule: Rule) -> Result<(), Problem> {
        match rule.stores {
            true => Ok(Box::pin(self.state.storage().check()).await?),
            false => Ok(()),
        }
    }

    async fn check(&self, caller: &Caller, asked: &RequestContext<'_>) -> Result<(), Problem> {
        if let Need::Scope(scope) = asked.rule.need
            && !caller.has(scope)
        {
            return Err(lacks(scope));
        }
        let Some(own) = caller.application() else {
            return Ok(());
        };
        match asked.rule.bound {
            Bound::Handler => Ok(()),
            Bound::Refused => Err(not_its_own(own)),
            Bound::Path => match self.owner(caller, asked).await? {
                Some(application) => caller.check(&application),
                None => Err(not_its_own(own)),
            },
        }
    }

    /// The application of the thing that a path names. It is never called for a query.
    async fn owner(
        &self,
        caller: &Caller,
        asked: &RequestContext<'_>,
    ) -> Result<Option<ApplicationId>, Problem> {
        let segments = asked.pattern.split('/');
        let mut segments = segments.zip(asked.uri.path().split('/'));
        let Some((what, name)) = segments.find(|(what, _)| what.starts_with('{')) else {
            return Ok(None);
        };
        let route = match what {
            "{application}" | "{pipeline}" => return Ok(Some(name.parse()?)),
            "{job}" => {
                let job: JobId = name.parse()?;
                let job = Box::pin(self.state.registry().job(&job)).await?;
                return Ok(Some(job.application));
            }
            // The characters of a reference need no escape, but some clients escape them.
            "{model}" => Route::Model(name.replace("%40", "@").replace("%3A", ":").parse()?),
            "{variant}" => Route::Variant(name.parse()?),
            _ => return Ok(None),
        };
        self.state.owner(caller, &route).await.map(Some)
    }

    /// Writes the audit entry of a change, after the change and before the caller gets its answer. While the registry
    /// is unreachable or full, the guard tries again for `patience`, because a change of artefacts alone succeeds
    /// without the registry. Then the caller gets its answer, and a task tries again until the entry is written or the
    /// service ends.
    async fn audit(
        &self,
        action: &str,
        caller: &Caller,
        (subject, detail): (&str, serde_json::Value),
        patience: Duration,
    ) {
        let entry = Audit::new(unix_ms(), caller.name(), action, subject, detail);
        let Err(error) = record(&self.state, &entry, patience).await else {
            return;
        };
        let waiting = self.waiting.load(Ordering::Relaxed);
        if patience.is_zero() || !may_pass(&error) || waiting >= MOST_WAITING {
            return lost(&entry, &error);
        }
        tracing::warn!(%error, action, subject, "an audit entry waits for the registry");
        let (state, waiting) = (self.state.clone(), Arc::clone(&self.waiting));
        waiting.fetch_add(1, Ordering::Relaxed);
        self.state.changes().later(async move {
            let written = async {
                while let Err(error) = record(&state, &entry, AUDIT_PATIENCE).await {
                    if !may_pass(&error) || state.is_draining() {
                        return lost(&entry, &error);
                    }
                }
            };
            written.await;
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Writes an entry. Tries again until `patience` is over, while the error is one that may pass.
async fn record(
    state: &ApiState,
    entry: &Audit,
    patience: Duration,
) -> Result<(), sextant_registry::Error> {
    let end = Instant::now() + patience;
    while let Err(error) = state.registry().record(entry).await {
        if !may_pass(&error) || Instant::now() >= end {
            return Err(error);
        }
        sleep(AUDIT_AGAIN).await;
    }
    Ok(())
}

/// Whether an error may pass. A full registry may get room again, often by the very change.
fn may_pass(error: &sextant_registry::Error) -> bool {
    error.is_retryable() || error.code() == Code::StorageFull
}

fn lost(entry: &Audit, error: &sextant_registry::Error) {
    let Audit {
        actor,
        action,
        subject,
        ..
    } = entry;
    tracing::error!(%error, actor, action, subject, "an audit entry was lost");
}

/// The caller whose key is `secret`.
pub(crate) fn identify(state: &ApiState, secret: &str) -> Result<Caller, Problem> {
    let hash = Hash::of(secret);
    let admin = state.auth().admin_key.as_ref();
    if admin.is_some_and(|admin| admin.is(hash)) {
        return Ok(Caller::Administrator);
    }
    let keyring = state.keyring();
    match keyring.find(hash) {
        Some(key) if key.expires_ms.is_some_and(|end| unix_ms() >= end) => {
            let detail = format!("key `{}` has expired", key.id);
            Err(Problem::new(Code::Unauthenticated, detail))
        }
        Some(key) => Ok(Caller::Key(key)),
        None if keyring.is_known() => Err(Problem::new(
            Code::Unauthenticated,
            "there is no such API key, or it was revoked",
        )),
        None => Err(
            Problem::new(Code::Unavailable, "the API keys could not be read yet")
                .retry_after_ms(1000),
        ),
    }
}

/// The name of what was changed: from the handler, else from the created resource's path, else from the request's path.
fn subject(uri: &Uri, response: &Response) -> String {
    if let Some(Subject(name)) = response.extensions().get() {
        return name.clone();
    }
    let created = response.headers().get(header::LOCATION);
    let created = created.and_then(|path| path.to_str().ok());
    last(created.unwrap_or(uri.path())).to_owned()
}

/// The last segment of a path; of a path below `/v1/artefacts/`, everything after that prefix.
fn last(path: &str) -> &str {
    let artefact = path.strip_prefix("/v1/artefacts/");
    artefact.unwrap_or_else(|| path.rsplit('/').next().unwrap_or(path))
}

/// The key in the headers of a request.
fn presented(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || {
        let detail = "send an API key: `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Problem::new(Code::Unauthenticated, detail)
    };
    if let Some(key) = headers.get(API_KEY) {
        return key.to_str().map_err(|_| missing());
    }
    let value = headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let (scheme, key) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(missing)?;
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Ok(key.trim()),
        false => Err(missing()),
    }
}

fn lacks(scope: KeyScope) -> Problem {
    let detail = format!("the key lacks the scope `{}`", scope.as_str());
    Problem::new(Code::Forbidden, detail)
}
