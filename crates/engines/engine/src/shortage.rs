//! What a device has too little of.

use std::fmt;

use crate::pages::Short;

/// Memory of a device that is missing for a load or a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    reason: String,
    pages: Option<Short>,
}

impl Shortage {
    /// Too few of the device's pages are free, as `reason` says.
    pub fn of_pages(reason: String, short: Short) -> Self {
        Self {
            reason,
            pages: Some(short),
        }
    }

    /// Pages that are needed and that are free, where it is pages that are missing; `None` where it is other memory,
    /// or where the engine cannot tell.
    pub fn pages(&self) -> Option<Short> {
        self.pages
    }
}

impl From<String> for Shortage {
    fn from(reason: String) -> Self {
        Self {
            reason,
            pages: None,
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
