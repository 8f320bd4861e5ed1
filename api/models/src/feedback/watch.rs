//! Watches for models whose accuracy has fallen.
//!
//! Every front end watches; what one of them has done, the others find done. The front end that takes an alarm in the
//! registry sends it; if it has not done so within a minute, another one takes the alarm.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use sextant_feedback::{Alarm, alarms};
use sextant_registry::{Application, FeedbackAlarm};
use sextant_rpc::Notice;
use sextant_types::{FeedbackSettings, ModelId, offline::shown_webhook, time::unix_ms};
use tokio::time::sleep;

use super::online::{RegisteredAccuracies, by_model};
use crate::{ApiState, problem::Problem};

/// How often the front end looks.
const EVERY: Duration = Duration::from_secs(5);

/// Time within which a front end that has taken an alarm must send it, ms.
const PATIENCE_MS: u64 = 60_000;

const HOUR_MS: u64 = 3_600_000;

/// Watches feedback for as long as the service runs.
pub async fn keep(state: &ApiState) -> Infallible {
    loop {
        sleep(EVERY).await;
        if let Err(problem) = look(state).await {
            let detail = problem.detail();
            tracing::warn!(detail, "feedback cannot be looked after");
        }
    }
}

async fn look(state: &ApiState) -> Result<(), Problem> {
    if !state.directory().anybody_takes_feedback() {
        return Ok(());
    }
    for application in state.registry().applications().await? {
        if let Some(settings) = &application.feedback {
            watch(state, &application, settings).await?;
        }
    }
    Ok(())
}

/// Raises and clears the alarms of an application's models, and sends those that were not sent.
async fn watch(
    state: &ApiState,
    application: &Application,
    settings: &FeedbackSettings,
) -> Result<(), Problem> {
    let id = &application.id;
    let sums = state.registry().feedback_sums(id).await?;
    let variants = state.metadata().variants().await?;
    let known = variants.iter().filter(|it| it.application == *id);
    let known: RegisteredAccuracies = known.map(|it| (it.id.clone(), it.accuracy)).collect();
    let now_ms = unix_ms();
    let mut found: Vec<(ModelId, Alarm)> = Vec::new();
    for ((model, _), of) in by_model(&sums) {
        // Agreement is not accuracy: the accuracy by labels cannot be compared with it.
        let registered = of.registered(&known).filter(|it| it.kind.is_accuracy());
        let raised = registered.map(|it| alarms(&it, &of.hours, now_ms / HOUR_MS));
        found.extend(
            raised
                .into_iter()
                .flatten()
                .map(|alarm| (model.clone(), alarm)),
        );
    }
    for (model, alarm) in &found {
        state
            .registry()
            .raise_alarm((id, model), alarm, now_ms)
            .await?;
    }
    for known in state.registry().feedback_alarms(id).await? {
        let is_on = found
            .iter()
            .any(|(model, alarm)| is_same(&known, model, alarm));
        match (is_on, &settings.webhook) {
            (false, _) => {
                let of = (id, &known.model, known.alarm.kind);
                state.registry().clear_alarm(of).await?;
            }
            (true, Some(webhook)) if known.told_ms.is_none() => {
                tell(state, application, webhook, &known).await?;
            }
            (true, _) => {}
        }
    }
    Ok(())
}

fn is_same(known: &FeedbackAlarm, model: &ModelId, alarm: &Alarm) -> bool {
    known.model == *model && known.alarm.kind == alarm.kind
}

async fn tell(
    state: &ApiState,
    application: &Application,
    webhook: &str,
    known: &FeedbackAlarm,
) -> Result<(), Problem> {
    let Some(notifier) = state.notifier() else {
        return Ok(());
    };
    let (now_ms, of) = (unix_ms(), (&application.id, &known.model, known.alarm.kind));
    let before_ms = now_ms.saturating_sub(PATIENCE_MS);
    if !state.registry().take_alarm(of, before_ms, now_ms).await? {
        return Ok(());
    }
    let notice = notice(application, webhook, known);
    let (model, kind) = (&known.model, known.alarm.kind.name());
    let shown = shown_webhook(webhook);
    match notifier.notify(&notice).await {
        Ok(status) => {
            tracing::info!(%model, kind, webhook = shown, status, "a webhook was told to retrain");
            state.registry().told_alarm(of, unix_ms()).await?;
        }
        Err(failure) => {
            tracing::warn!(%model, kind, webhook = shown, %failure, "a webhook was not told to retrain");
        }
    }
    Ok(())
}

fn notice(application: &Application, webhook: &str, known: &FeedbackAlarm) -> Notice {
    let alarm = &known.alarm;
    let body = serde_json::json!({
        "event": "retrain", "application": application.id, "model": known.model,
        "metric": application.metric.name(), "alarm": alarm.kind.name(), "seen": alarm.seen,
        "limit": alarm.limit, "rows": alarm.rows, "since_ms": known.since_ms,
    });
    Notice {
        url: webhook.to_owned(),
        id: format!("{}-{}-{}", known.model, alarm.kind.name(), known.since_ms),
        body: Bytes::from(body.to_string()),
    }
}
