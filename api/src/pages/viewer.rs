//! The viewer of a page.

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
    response::Response,
};
use sextant_pages::{Frame, Question, RefusalPage};
use sextant_types::time::unix_ms;
use tokio::sync::OwnedSemaphorePermit;

use super::{go_to, html, status_of, text};
use crate::{
    ApiState,
    auth::{Caller, Mode},
    problem::Problem,
};

/// Who views a page, and what they may see. Where keys are asked for, a viewer that has not signed in is sent to the
/// form.
pub(crate) struct Viewer {
    caller: Caller,
    /// Who has signed in.
    name: Option<String>,
    /// The request's place among those of its key.
    _place: Option<OwnedSemaphorePermit>,
}

// === impl Viewer ===

impl Viewer {
    /// The caller whose rights the page has.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The frame of a page that renews itself.
    pub fn frame(&self, question: Option<Question>) -> Frame {
        Frame {
            live: true,
            ..frame(question, self.name.clone())
        }
    }

    /// The frame of a page that does not renew itself.
    pub fn still_frame(&self, question: Question) -> Frame {
        frame(Some(question), self.name.clone())
    }

    /// Shows the page, or why there is none.
    pub fn show(&self, made: Result<String, Problem>, question: Question) -> Response {
        match made {
            Ok(text) => html(StatusCode::OK, text),
            Err(problem) => refuse(&problem, self.still_frame(question)),
        }
    }

    async fn find(parts: &Parts, state: &ApiState) -> Result<Self, Response> {
        if state.auth().mode == Mode::Off {
            return Ok(Self {
                caller: Caller::Anyone,
                name: None,
                _place: None,
            });
        }
        let caller = state.sessions().find(&parts.headers);
        let known = caller.filter(|caller| state.still_knows(caller));
        let caller = known.ok_or_else(|| go_to(&sign_in(parts)))?;
        let place = caller.charge(state).await;
        let name = caller.name().to_owned();
        match place {
            Ok(place) => Ok(Self {
                caller,
                name: Some(name),
                _place: place,
            }),
            Err(problem) => Err(refuse(&problem, frame(None, Some(name)))),
        }
    }
}

impl FromRequestParts<ApiState> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Response> {
        Self::find(parts, state).await
    }
}

/// The address of the form, which then leads to the page that was asked for.
fn sign_in(parts: &Parts) -> String {
    match parts.uri.path() {
        "/" => "/sign-in".to_owned(),
        path => format!("/sign-in?next={path}"),
    }
}

/// The frame of a page that is made now.
pub(super) fn frame(question: Option<Question>, signed_in: Option<String>) -> Frame {
    Frame {
        question,
        version: env!("CARGO_PKG_VERSION"),
        now_ms: unix_ms(),
        signed_in,
        live: false,
    }
}

/// The page that shows a refusal.
fn refuse(problem: &Problem, frame: Frame) -> Response {
    let document = problem.document("/", false, None);
    let made = text(&RefusalPage {
        frame,
        title: document.title.to_owned(),
        detail: document.detail,
        code: document.code.to_owned(),
    });
    html(status_of(problem.code()), made.unwrap_or_default())
}
