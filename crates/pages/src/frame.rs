//! The frame around every page.

/// The question that a page answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Is everybody served?
    Served,
    /// What is registered?
    Registered,
    /// Why this size?
    Size,
    /// Why this answer?
    Answer,
}

/// The frame of a page: who is signed in, and when the page was made.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The question that it answers; `None` for a page that answers none.
    pub question: Option<Question>,
    /// The version that runs.
    pub version: &'static str,
    /// When it was made, milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The name of who has signed in; `None` if nobody needs to.
    pub signed_in: Option<String>,
    /// Whether the page renews itself.
    pub live: bool,
}

// === impl Question ===

impl Question {
    /// All of them, in the order of the navigation.
    pub const ALL: [Self; 4] = [Self::Served, Self::Registered, Self::Size, Self::Answer];

    /// The path of its page.
    pub fn path(self) -> &'static str {
        match self {
            Self::Served => "/",
            Self::Registered => "/registered",
            Self::Size => "/size",
            Self::Answer => "/answer",
        }
    }

    /// The question in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Served => "Is everybody served?",
            Self::Registered => "What is registered?",
            Self::Size => "Why this size?",
            Self::Answer => "Why this answer?",
        }
    }
}

// === impl Frame ===

impl Frame {
    /// The page's title.
    pub(crate) fn title(&self) -> &'static str {
        self.question.map_or("Sextant", Question::text)
    }

    pub(crate) fn is_at(&self, question: &Question) -> bool {
        self.question == Some(*question)
    }
}

/// A page that can be rendered.
pub trait Page {
    /// Its text, HTML.
    fn text(&self) -> Result<String, askama::Error>;
}

impl<T: askama::Template> Page for T {
    fn text(&self) -> Result<String, askama::Error> {
        self.render()
    }
}
