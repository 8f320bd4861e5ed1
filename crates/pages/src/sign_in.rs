//! The form that asks for a key, and the page of what was refused.

use askama::Template;

use crate::{Frame, Question, figures};

/// The form.
#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignIn {
    /// What is around it.
    pub frame: Frame,
    /// Where to go then.
    pub next: String,
    /// Why the last key was not taken.
    pub refusal: Option<String>,
}

/// A page that cannot be had.
#[derive(Debug, Template)]
#[template(path = "refused.html")]
pub struct RefusalPage {
    /// What is around it.
    pub frame: Frame,
    /// What the code means.
    pub title: String,
    /// What happened.
    pub detail: String,
    /// Its code.
    pub code: String,
}
