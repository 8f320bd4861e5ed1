//! Alarms: models that should be trained again, and who was told.

use sextant_feedback::{Alarm, AlarmKind};
use sextant_types::{ApplicationId, ModelId};

use crate::{
    Entity, Error, Registry,
    rows::{Columns, int},
    sql,
};

/// A model that should be trained again.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedbackAlarm {
    /// The model.
    pub model: ModelId,
    /// The alarm.
    pub alarm: Alarm,
    /// When it was raised, ms since the Unix epoch.
    pub since_ms: u64,
    /// When the webhook was told, ms since the Unix epoch.
    pub told_ms: Option<u64>,
}

impl Registry {
    /// The alarms of an application, in the order of model and kind.
    pub async fn feedback_alarms(
        &self,
        application: &ApplicationId,
    ) -> Result<Vec<FeedbackAlarm>, Error> {
        let query = sql::FEEDBACK_ALARMS.bind(application.as_str());
        let rows = self.read().await?.rows(query).await?;
        let read = |row| {
            let columns = Columns::new(row, Entity::Feedback, "application")?;
            Ok(FeedbackAlarm {
                model: columns.parse("model")?,
                alarm: Alarm {
                    kind: columns.one_of("kind", kind)?,
                    seen: columns.real("seen")?,
                    limit: columns.real("bound")?,
                    rows: columns.count("counted")?,
                },
                since_ms: columns.count("since_ms")?,
                told_ms: columns.optional_count("told_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Stores an alarm. If it is stored already, updates its figures.
    pub async fn raise_alarm(
        &self,
        (application, model): (&ApplicationId, &ModelId),
        alarm: &Alarm,
        now_ms: u64,
    ) -> Result<(), Error> {
        let raise = sql::RAISE_ALARM
            .bind(application.as_str())
            .bind(model.as_str())
            .bind(alarm.kind.name())
            .bind(int(now_ms))
            .bind(Some(alarm.seen))
            .bind(Some(alarm.limit))
            .bind(int(alarm.rows));
        let mut tx = self.begin_rows().await?;
        tx.run(raise).await?;
        tx.commit().await
    }

    /// Claims an alarm in order to tell the webhook of it; `false` if the webhook was told, or if another process has
    /// claimed it since `before_ms`.
    pub async fn take_alarm(
        &self,
        (application, model, kind): (&ApplicationId, &ModelId, AlarmKind),
        before_ms: u64,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let take = sql::TAKE_ALARM
            .bind(application.as_str())
            .bind(model.as_str())
            .bind(kind.name())
            .bind(int(before_ms))
            .bind(int(now_ms));
        let mut tx = self.begin_rows().await?;
        let taken = tx.run(take).await?;
        tx.commit().await?;
        Ok(taken > 0)
    }

    /// Notes that the webhook was told of an alarm.
    pub async fn told_alarm(
        &self,
        (application, model, kind): (&ApplicationId, &ModelId, AlarmKind),
        now_ms: u64,
    ) -> Result<(), Error> {
        let told = sql::TOLD_ALARM
            .bind(application.as_str())
            .bind(model.as_str())
            .bind(kind.name())
            .bind(int(now_ms));
        let mut tx = self.begin_rows().await?;
        tx.run(told).await?;
        tx.commit().await
    }

    /// Removes an alarm that has ended.
    pub async fn clear_alarm(
        &self,
        (application, model, kind): (&ApplicationId, &ModelId, AlarmKind),
    ) -> Result<(), Error> {
        let clear = sql::CLEAR_ALARM
            .bind(application.as_str())
            .bind(model.as_str())
            .bind(kind.name());
        let mut tx = self.begin_rows().await?;
        tx.run(clear).await?;
        tx.commit().await
    }
}

fn kind(name: &str) -> Option<AlarmKind> {
    let all = [AlarmKind::Level, AlarmKind::Slope];
    all.into_iter().find(|kind| kind.name() == name)
}
