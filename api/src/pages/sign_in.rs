//! Signing in with a key, and out.

use axum::{
    Form,
    extract::{
        Extension, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use serde::Deserialize;
use sextant_pages::SignIn;
use sextant_types::Code;

use super::{EncryptedConnection, Question, go_to, html, status_of, text, viewer::frame};
use crate::{
    ApiState,
    auth::{self, Caller, Mode},
    problem::Problem,
};

/// The page that the form leads to.
#[derive(Deserialize)]
pub(super) struct ReturnPath {
    next: Option<String>,
}

/// What the form sends.
#[derive(Deserialize)]
pub(super) struct SignInForm {
    key: String,
    next: Option<String>,
}

/// The form.
pub(super) async fn form(
    State(state): State<ApiState>,
    next: Result<Query<ReturnPath>, QueryRejection>,
) -> Response {
    let next = next.ok().and_then(|Query(given)| given.next);
    let next = page(next.as_deref());
    match state.auth().mode {
        Mode::Off => go_to(next),
        Mode::Keys => show(next, None),
    }
}

/// Begins a session for a client that sends a valid key.
pub(super) async fn take(
    State(state): State<ApiState>,
    encrypted: Option<Extension<EncryptedConnection>>,
    headers: HeaderMap,
    given: Result<Form<SignInForm>, FormRejection>,
) -> Response {
    let Ok(Form(SignInForm { key, next })) = given else {
        let problem = Problem::new(Code::InvalidRequest, "the form could not be read");
        return show("/", Some(&problem));
    };
    let next = page(next.as_deref());
    let is_encrypted = encrypted.is_some() || is_forwarded_encrypted(&headers);
    let begun = admit(&state, &key).await.and_then(|caller| {
        tracing::info!(key = caller.name(), "signed in");
        state.sessions().begin(caller, is_encrypted)
    });
    match begun {
        Ok(cookie) => {
            let mut response = go_to(next);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(problem) => show(next, Some(&problem)),
    }
}

/// Ends the session.
pub(super) async fn end(
    State(state): State<ApiState>,
    encrypted: Option<Extension<EncryptedConnection>>,
    headers: HeaderMap,
) -> Response {
    let is_encrypted = encrypted.is_some() || is_forwarded_encrypted(&headers);
    let mut response = go_to("/sign-in");
    if let Ok(cookie) = state.sessions().end(&headers, is_encrypted) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The caller whose key that is; it is charged as for a request.
async fn admit(state: &ApiState, key: &str) -> Result<Caller, Problem> {
    let caller = auth::identify(state, key.trim())?;
    caller.charge(state).await?;
    Ok(caller)
}

/// The page to go to. It is always a page of this service, whatever was given.
fn page(given: Option<&str>) -> &str {
    let is_ours = |path: &&str| {
        let pages = Question::ALL.map(Question::path);
        let below = |path: &str| path.strip_prefix("/answer/").is_some_and(is_plain);
        pages.contains(path) || below(path)
    };
    given.filter(is_ours).unwrap_or("/")
}

fn is_plain(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
    id.bytes().all(is_plain)
}

/// Whether the proxy before the service says that the browser's connection is encrypted.
fn is_forwarded_encrypted(headers: &HeaderMap) -> bool {
    let scheme = headers.get("x-forwarded-proto");
    scheme.is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
}

fn show(next: &str, refusal: Option<&Problem>) -> Response {
    let made = text(&SignIn {
        frame: frame(None, None),
        next: next.to_owned(),
        refusal: refusal.map(|problem| problem.detail().to_owned()),
    });
    let code = refusal.map_or(StatusCode::OK, |problem| status_of(problem.code()));
    html(code, made.unwrap_or_default())
}
