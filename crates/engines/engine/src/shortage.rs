//! The memory that a device lacks.

use std::fmt;

use crate::pages::PageShortage;

/// A device's lack of memory for a load or a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    reason: String,
    pages: Option<PageShortage>,
    is_fixed: bool,
}

impl Shortage {
    /// A lack of memory that no unload can relieve, such as memory that the configuration reserves, as `reason` says.
    pub fn fixed(reason: String) -> Self {
        Self {
            is_fixed: true,
            ..reason.into()
        }
    }

    /// Too few of the device's pages are free, as `reason` says.
    pub fn of_pages(reason: String, short: PageShortage) -> Self {
        Self {
            reason,
            pages: Some(short),
            is_fixed: false,
        }
    }

    /// The needed and the free pages, if pages are missing; `None` if other memory is missing, or if the engine cannot
    /// tell.
    pub fn pages(&self) -> Option<PageShortage> {
        self.pages
    }

    /// Whether the lack remains however many models are unloaded.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }
}

impl From<String> for Shortage {
    fn from(reason: String) -> Self {
        Self {
            reason,
            pages: None,
            is_fixed: false,
        }
    }
}

impl From<&str> for Shortage {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}
