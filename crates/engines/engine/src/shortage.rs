//! What a device has too little of.

use std::fmt;

use crate::pages::PageShortage;

/// Memory of a device that is missing for a load or a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    reason: String,
    pages: Option<PageShortage>,
    is_fixed: bool,
}

impl Shortage {
    /// Memory is missing that no unload gives back, such as what the configuration sets aside, as `reason` says.
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

    /// Pages that are needed and that are free, where it is pages that are missing; `None` where it is other memory,
    /// or where the engine cannot tell.
    pub fn pages(&self) -> Option<PageShortage> {
        self.pages
    }

    /// Whether it stays however many models go.
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
