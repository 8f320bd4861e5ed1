//! The feedback settings of an application, on the wire.

use serde::{Deserialize, Serialize};
use sextant_types::{
    Code, FeedbackSettings, RewardDirection,
    offline::{check_webhook, shown_webhook},
};
use utoipa::ToSchema;

use crate::problem::Problem;

/// The feedback that an application takes, and for how long it keeps it. Members that are left out have
/// their defaults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FeedbackSettings)]
pub struct SettingsBody {
    /// Most bytes that are kept, 268435456 by default; the oldest feedback is removed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 4294967296_u64, example = 268435456)]
    max_bytes: Option<u64>,
    /// Days for which feedback is kept, 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 366, example = 30)]
    keep_days: Option<u32>,
    /// Which rewards are better: `higher`, which is the default, or `lower`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "higher")]
    reward: Option<String>,
    /// Address to which the service sends a message when a model has become worse and should be trained again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://hooks.example/retrain")]
    webhook: Option<String>,
}

// === impl SettingsBody ===

impl SettingsBody {
    /// Checks the values.
    pub fn read(self) -> Result<FeedbackSettings, Problem> {
        let usual = FeedbackSettings::default();
        let reward = match self.reward.as_deref() {
            None | Some("higher") => RewardDirection::Higher,
            Some("lower") => RewardDirection::Lower,
            Some(_) => return Err(refused("reward", "`reward` is `higher` or `lower`")),
        };
        if let Some(Err(reason)) = self.webhook.as_deref().map(check_webhook) {
            return Err(refused("webhook", reason));
        }
        let settings = FeedbackSettings {
            max_bytes: self.max_bytes.unwrap_or(usual.max_bytes),
            keep_days: self.keep_days.unwrap_or(usual.keep_days),
            reward,
            webhook: self.webhook,
        };
        let validated = settings.validate();
        validated.map_err(|invalid| refused(invalid.name, &invalid.to_string()))?;
        Ok(settings)
    }

    /// All settings. Of the webhook, only the scheme and the host are shown, because its path may be a secret.
    pub fn show(settings: &FeedbackSettings) -> Self {
        Self {
            max_bytes: Some(settings.max_bytes),
            keep_days: Some(settings.keep_days),
            reward: Some(
                match settings.reward {
                    RewardDirection::Higher => "higher",
                    RewardDirection::Lower => "lower",
                }
                .to_owned(),
            ),
            webhook: settings.webhook.as_deref().map(shown_webhook),
        }
    }
}

fn refused(field: &str, detail: &str) -> Problem {
    Problem::new(Code::InvalidRequest, detail).field(format!("feedback.{field}"))
}
