//! Which feedback an application takes.

use serde::{Deserialize, Serialize};

/// The most bytes of feedback that an application may keep.
pub const MOST_BYTES: u64 = 4 << 30;

/// The most days for which an application may keep feedback.
pub const MOST_DAYS: u32 = 366;

/// Which feedback an application takes, and how long it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedbackSettings {
    /// The most bytes that are kept. The oldest feedback is removed first.
    pub max_bytes: u64,
    /// The number of days for which it is kept.
    pub keep_days: u32,
    /// Which rewards are better.
    pub reward: RewardDirection,
    /// The address of a message when a model has become worse and should be trained again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

/// Which of two rewards is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardDirection {
    /// The higher one.
    #[default]
    Higher,
    /// The lower one.
    Lower,
}

/// A setting that no application may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is `{value}`: it must be {rule}")]
pub struct InvalidFeedbackSettings {
    /// The field's public name.
    pub name: &'static str,
    /// The refused value.
    pub value: u64,
    /// The values that would be accepted.
    pub rule: &'static str,
}

// === impl FeedbackSettings ===

impl FeedbackSettings {
    /// Refuses limits that keep nothing, and unreasonably large ones.
    ///
    /// # Errors
    /// Which limit, and what would be accepted.
    pub fn validate(&self) -> Result<(), InvalidFeedbackSettings> {
        if !(1 << 16..=MOST_BYTES).contains(&self.max_bytes) {
            return Err(InvalidFeedbackSettings {
                name: "max_bytes",
                value: self.max_bytes,
                rule: "from 65536 to 4294967296",
            });
        }
        if !(1..=MOST_DAYS).contains(&self.keep_days) {
            return Err(InvalidFeedbackSettings {
                name: "keep_days",
                value: self.keep_days.into(),
                rule: "from 1 to 366",
            });
        }
        Ok(())
    }
}

impl Default for FeedbackSettings {
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            keep_days: 30,
            reward: RewardDirection::Higher,
            webhook: None,
        }
    }
}
