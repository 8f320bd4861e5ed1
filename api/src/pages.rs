//! The pages for people, at `/`, `/registered`, `/size` and `/answer`.
//!
//! A page shows what the operations beside it answer, in the same words: its handler calls their handlers and gives the
//! documents to [`sextant_pages`]. Where keys are asked for, the viewer has signed in with one, and sees what that key
//! may read (`viewer`).

use axum::{
    Router,
    extract::{DefaultBodyLimit, Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sextant_pages::{Manual, QueriesPage, QueryPage, Question, RegistryPage, ServicePage, Size};
use sextant_registry::KeyScope;
use sextant_types::Code;

use crate::{
    ApiState,
    auth::Caller,
    codec::short,
    explanations::LONGEST_ID,
    extract::Params,
    feedback::online,
    jobs, models, page, pipelines,
    problem::{Problem, status as status_of},
    scaling,
    sessions::EncryptedConnection,
    status, variants,
};

mod accept;
mod sign_in;
mod viewer;

pub(crate) use accept::prefers_page;
pub(crate) use viewer::Viewer;

/// What pages may load: files of this service. No page may put them in a frame, and their forms are sent to this
/// service alone.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      object-src 'none'";

/// Routes of pages, which check keys in their own way.
const ROUTES: [&str; 7] = [
    "/registered",
    "/size",
    "/answer",
    "/answer/{query}",
    "/sign-in",
    "/sign-out",
    "/pages/{file}",
];

/// Most jobs, decisions and queries on a page.
const MOST_JOBS: u32 = 40;
const MOST_DECISIONS: usize = 20;
const MOST_QUERIES: usize = 100;
/// Most bytes of a form.
const MOST_FORM_BYTES: usize = 4096;

/// The routes of all pages but `/`, which programs request as well.
pub(crate) fn routes() -> Router<ApiState> {
    let form = DefaultBodyLimit::max(MOST_FORM_BYTES);
    Router::new()
        .route("/registered", get(registered))
        .route("/size", get(size))
        .route("/answer", get(kept))
        .route("/answer/{query}", get(answered))
        .route(
            "/sign-in",
            get(sign_in::form).post(sign_in::take).layer(form),
        )
        .route("/sign-out", post(sign_in::end))
        .route("/pages/{file}", get(file))
}

/// Whether a route's pattern is that of a page.
pub(crate) fn is_page(pattern: &str) -> bool {
    ROUTES.contains(&pattern)
}

/// *Is everybody served?*
pub(crate) async fn served(state: &ApiState, viewer: &Viewer) -> Response {
    let made = make_served(state, viewer).await;
    viewer.show(made, Question::Served)
}

async fn make_served(state: &ApiState, viewer: &Viewer) -> Result<String, Problem> {
    let statuses = status::all(state, viewer.caller()).await?;
    let fleet_per_hour_usd = match viewer.caller().application() {
        None => {
            let overview = scaling::get(State(state.clone())).await?;
            let overview: Value = view(&overview.0)?;
            overview["cost_per_hour_usd"]["actual"].as_f64()
        }
        Some(_) => None,
    };
    text(&ServicePage {
        frame: viewer.frame(Some(Question::Served)),
        applications: view(&statuses)?,
        fleet_per_hour_usd,
    })
}

async fn registered(State(state): State<ApiState>, viewer: Viewer) -> Response {
    let made = make_registered(&state, &viewer).await;
    viewer.show(made, Question::Registered)
}

async fn make_registered(state: &ApiState, viewer: &Viewer) -> Result<String, Problem> {
    let caller = viewer.caller();
    let all = params(serde_json::json!({}))?;
    let models = models::list(State(state.clone()), caller.clone(), all).await?;
    let variants = on_the_frontier(state, caller).await?;
    // A bound key may not list the jobs of other applications.
    let own = caller.application().map(ToString::to_string);
    let last = params(serde_json::json!({"application": own, "limit": MOST_JOBS}))?;
    let jobs = jobs::list(State(state.clone()), last).await?;
    text(&RegistryPage {
        frame: viewer.frame(Some(Question::Registered)),
        models: member(&models.0, "models")?,
        online: view(&online(state, caller).await?)?,
        variants: view(&variants)?,
        pipelines: pipelines::drawn(state, caller).await?,
        jobs: member(&jobs.0, "jobs")?,
    })
}

/// All pages of the list of variants on the frontier.
async fn on_the_frontier(state: &ApiState, caller: &Caller) -> Result<Vec<Value>, Problem> {
    let (mut variants, mut after) = (Vec::new(), None::<String>);
    loop {
        let part = serde_json::json!({"frontier": true, "limit": page::MOST, "after": after});
        let part = variants::list(State(state.clone()), caller.clone(), params(part)?).await?;
        variants.append(&mut member(&part.0, "variants")?);
        after = member(&part.0, "next")?;
        if after.is_none() {
            return Ok(variants);
        }
    }
}

/// The figures of feedback for the versions that a caller may see.
async fn online(state: &ApiState, caller: &Caller) -> Result<Vec<online::ModelBody>, Problem> {
    let mut all = Vec::new();
    for application in state.registry().applications().await? {
        if application.feedback.is_some() && caller.check(&application.id).is_ok() {
            let (id, metric) = (&application.id, application.metric);
            all.extend(online::of_application(state, id, metric).await?);
        }
    }
    Ok(all)
}

async fn size(State(state): State<ApiState>, viewer: Viewer) -> Response {
    let made = make_size(&state, &viewer).await;
    viewer.show(made, Question::Size)
}

async fn make_size(state: &ApiState, viewer: &Viewer) -> Result<String, Problem> {
    if let Some(own) = viewer.caller().application() {
        let detail = format!(
            "the key is bound to application `{own}`, and how many workers there are concerns all"
        );
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let overview = scaling::get(State(state.clone())).await?;
    let last = params(serde_json::json!({"limit": MOST_DECISIONS}))?;
    let decisions = scaling::decisions(State(state.clone()), last).await?;
    text(&Size {
        frame: viewer.frame(Some(Question::Size)),
        scaling: view(&overview.0)?,
        decisions: member(&decisions.0, "decisions")?,
    })
}

/// What the form of the page asks for.
#[derive(Deserialize)]
struct QueryForm {
    query: Option<String>,
}

async fn kept(
    State(state): State<ApiState>,
    viewer: Viewer,
    wanted: Result<Query<QueryForm>, QueryRejection>,
) -> Response {
    let id = wanted.ok().and_then(|Query(wanted)| wanted.query);
    let id = id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let made = match id {
        Some(id) => make_answered(&state, &viewer, id),
        None => make_kept(&state, &viewer),
    };
    viewer.show(made, Question::Answer)
}

fn make_kept(state: &ApiState, viewer: &Viewer) -> Result<String, Problem> {
    let caller = asks(viewer.caller())?;
    let documents = state.explanations().last(MOST_QUERIES, caller);
    let queries: Result<_, Problem> = documents.iter().map(|document| read(document)).collect();
    text(&QueriesPage {
        frame: viewer.frame(Some(Question::Answer)),
        queries: queries?,
    })
}

async fn answered(
    State(state): State<ApiState>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Response {
    let made = make_answered(&state, &viewer, &id);
    viewer.show(made, Question::Answer)
}

fn make_answered(state: &ApiState, viewer: &Viewer, id: &str) -> Result<String, Problem> {
    let caller = asks(viewer.caller())?;
    if id.len() > LONGEST_ID {
        let detail = format!("`{}` is longer than any id of a query", short(id));
        return Err(Problem::new(Code::QueryNotFound, detail));
    }
    let document = state.explanations().find(id, caller)?;
    text(&QueryPage {
        // The answer does not change any more.
        frame: viewer.still_frame(Question::Answer),
        query: read(&document)?,
    })
}

/// The caller, if it may read why queries were answered as they were.
fn asks(caller: &Caller) -> Result<&Caller, Problem> {
    match caller.has(KeyScope::Query) {
        true => Ok(caller),
        false => Err(Problem::new(
            Code::Forbidden,
            "the key lacks the scope `query`",
        )),
    }
}

async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
    let Some(file) = sextant_pages::file(&name) else {
        let detail = format!("pages have no file `{}`", short(&name));
        return Err(Problem::new(Code::RouteNotFound, detail));
    };
    let headers = [
        (header::CONTENT_TYPE, file.media_type),
        (header::CACHE_CONTROL, "max-age=300"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, file.content).into_response())
}

/// An operation's document, as the page's type.
fn view<T: DeserializeOwned>(document: &impl Serialize) -> Result<T, Problem> {
    let document = serde_json::to_value(document).map_err(unreadable)?;
    serde_json::from_value(document).map_err(unreadable)
}

/// A member of an operation's document.
fn member<T: DeserializeOwned>(document: &impl Serialize, name: &str) -> Result<T, Problem> {
    let mut document = serde_json::to_value(document).map_err(unreadable)?;
    serde_json::from_value(document[name].take()).map_err(unreadable)
}

fn read<T: DeserializeOwned>(document: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(document).map_err(unreadable)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` hands over what it has"
)]
fn unreadable(error: serde_json::Error) -> Problem {
    Problem::internal("a page", &error)
}

/// The parameters of an operation.
fn params<T: DeserializeOwned>(given: Value) -> Result<Params<T>, Problem> {
    serde_json::from_value(given)
        .map(Params)
        .map_err(unreadable)
}

/// A document of the program as a page, HTML. It does not show who is signed in, because it may be read without a key.
pub(crate) fn manual(markdown: &str) -> Result<String, Problem> {
    text(&Manual::new(viewer::frame(None, None), markdown))
}

fn text(page: &impl sextant_pages::Page) -> Result<String, Problem> {
    page.text()
        .map_err(|error| Problem::internal("a page", &error))
}

/// A page with the headers that browsers need.
fn html(code: StatusCode, text: String) -> Response {
    let mut response = (code, text).into_response();
    let headers = response.headers_mut();
    protect(headers);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    response
}

/// Sets the headers that restrict what browsers do with the pages.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "accept, cookie"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Redirects to another page, which the browser requests with `GET`.
fn go_to(path: &str) -> Response {
    let mut response = Redirect::to(path).into_response();
    protect(response.headers_mut());
    response
}
