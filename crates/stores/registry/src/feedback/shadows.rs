//! The answers of shadows, kept until feedback on the current version's answers shows their worth.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sextant_feedback::{Prediction, serial_text};
use sextant_types::ModelId;

use crate::{
    Entity, Error, Registry,
    database::Json,
    rows::{Columns, int},
    sql,
};

/// The answer of a shadow to one query.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowAnswer {
    /// The shadow.
    pub model: ModelId,
    /// The number in the token of the current version's answer.
    pub serial: u64,
    /// When it answered, ms since the Unix epoch.
    pub answered_ms: u64,
    /// Rows of the answer.
    pub rows: u32,
    /// What it predicted.
    pub prediction: Prediction,
}

impl Registry {
    /// Stores answers of shadows. An answer that is stored already stays. Answers of a model that does not exist any
    /// more, or whose application accepts no feedback, are not stored.
    pub async fn put_shadow_answers(&self, answers: &[ShadowAnswer]) -> Result<(), Error> {
        if answers.is_empty() {
            return Ok(());
        }
        let rows = answers.iter().map(|it| {
            json!({
                "model": it.model, "serial": serial_text(it.serial), "answered_ms": it.answered_ms,
                "counted": it.rows, "prediction": hex::encode(it.prediction.to_bytes()),
            })
        });
        let rows = Json(Value::Array(rows.collect()).to_string());
        let mut tx = self.begin_rows().await?;
        tx.run(sql::PUT_SHADOW_ANSWERS.bind(rows)).await?;
        tx.commit().await
    }

    /// The answers of a shadow to queries, by the text of their numbers, without those that do not exist.
    pub async fn shadow_answers(
        &self,
        model: &ModelId,
        serials: &[&str],
    ) -> Result<BTreeMap<String, Prediction>, Error> {
        let keys = serials.iter().map(|serial| json!({"serial": serial}));
        let keys = Json(Value::Array(keys.collect()).to_string());
        let query = sql::SHADOW_ANSWERS.bind(model.as_str()).bind(keys);
        let rows = self.read().await?.rows(query).await?;
        let mut answers = BTreeMap::new();
        for row in &rows {
            let columns = Columns::new(row, Entity::Feedback, "serial")?;
            let bytes = hex::decode(columns.text("prediction")?).ok();
            let rows = columns.count("counted")?;
            if let Some(prediction) = bytes.and_then(|bytes| Prediction::of_bytes(&bytes, rows)) {
                answers.insert(columns.text("serial")?, prediction);
            }
        }
        Ok(answers)
    }

    /// Removes answers of shadows from before a time, and the oldest ones beyond a number of rows.
    pub async fn prune_shadow_answers(&self, before_ms: u64, most: u64) -> Result<(), Error> {
        let mut tx = self.begin_rows().await?;
        tx.run(sql::FORGET_SHADOW_ANSWERS.bind(int(before_ms)))
            .await?;
        tx.run(sql::FORGET_EXCESS_SHADOW_ANSWERS.bind(int(most)))
            .await?;
        tx.commit().await
    }
}
