//! The form that asks for a key, and the page of a refusal.

use askama::Template;

use crate::{Frame, Question, figures};

/// The form.
#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignIn {
    /// The frame.
    pub frame: Frame,
    /// The page to go to after that.
    pub next: String,
    /// Why the last key was refused.
    pub refusal: Option<String>,
}

/// The page of a refusal.
#[derive(Debug, Template)]
#[template(path = "refused.html")]
pub struct RefusalPage {
    /// The frame.
    pub frame: Frame,
    /// What the code means.
    pub title: String,
    /// What happened.
    pub detail: String,
    /// Its code.
    pub code: String,
}
