//! The steps of a model's registration.

use serde_json::Value;
use sextant_types::ModelId;

use super::get;
use crate::{
    Entity, Error, Registry, blob,
    database::{Row, Session},
    rows::{Columns, document},
    sql,
};

/// The stored result of one step of a registration.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Unique within the model, e.g. `measure:m-ort-fp32-all-t1-b8`.
    pub name: String,
    /// The data with which the step can be skipped later.
    pub result: Value,
}

impl Registry {
    /// Stores a step's result and replaces an earlier one.
    pub async fn put_step(&self, model: &ModelId, name: &str, result: &Value) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        put_step(&mut tx, model, name, result).await?;
        tx.commit().await
    }

    /// The stored results of a model's steps, sorted by name.
    pub async fn steps(&self, model: &ModelId) -> Result<Vec<Step>, Error> {
        let rows = self
            .read()
            .await?
            .rows(sql::STEPS.bind(model.as_str()))
            .await?;
        rows.iter().map(step).collect()
    }
}

pub(crate) async fn put_step(
    connection: &mut Session,
    model: &ModelId,
    name: &str,
    result: &Value,
) -> Result<(), Error> {
    get(connection, model).await?;
    let result = document(Entity::Model, model, result)?;
    blob::refuse_condemned(connection, blob::mentioned(&result.0)).await?;
    let row = sql::PUT_STEP.bind(model.as_str()).bind(name).bind(result);
    connection.run(row).await?;
    Ok(())
}

fn step(row: &Row) -> Result<Step, Error> {
    let columns = Columns::new(row, Entity::Model, "model")?;
    Ok(Step {
        name: columns.text("name")?,
        result: columns.json("result")?,
    })
}
