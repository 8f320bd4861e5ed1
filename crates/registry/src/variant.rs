//! Variants: one document each, beside the columns they are found by.

use sextant_types::{ModelId, Variant, VariantId};
use sqlx::{SqliteConnection, sqlite::SqliteRow};

use crate::{
    Entity, Error, Registry, model,
    rows::{Columns, document},
};

impl Registry {
    /// Inserts or replaces variants, all or none. Their models must exist.
    pub async fn put_variants(&self, variants: &[Variant]) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        put(&mut tx, variants).await?;
        tx.commit().await?;
        Ok(())
    }

    /// One variant, whatever the state of its model.
    pub async fn variant(&self, id: &VariantId) -> Result<Variant, Error> {
        let row = sqlx::query("select * from variants where id = $1")
            .bind(id.as_str())
            .fetch_optional(&self.inner.readers)
            .await?;
        let row = row.ok_or_else(|| Error::not_found(Entity::Variant, id))?;
        variant(&row)
    }

    /// A model's variants, whatever its state, sorted by name.
    pub async fn variants_of(&self, model: &ModelId) -> Result<Vec<Variant>, Error> {
        let rows = sqlx::query("select * from variants where model = $1 order by id")
            .bind(model.as_str())
            .fetch_all(&self.inner.readers)
            .await?;
        rows.iter().map(variant).collect()
    }

    /// The variants of all models that are ready, sorted by name: what is to be published.
    pub async fn ready_variants(&self) -> Result<Vec<Variant>, Error> {
        let rows = sqlx::query(
            "select variants.* from variants join models on models.id = variants.model \
             where models.status = 'ready' order by variants.id",
        )
        .fetch_all(&self.inner.readers)
        .await?;
        rows.iter().map(variant).collect()
    }

    /// Removes a model's variants and returns their names.
    pub async fn delete_variants(&self, model: &ModelId) -> Result<Vec<VariantId>, Error> {
        let mut tx = self.begin().await?;
        let names = names_of(&mut tx, model).await?;
        sqlx::query("delete from variants where model = $1")
            .bind(model.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(names)
    }
}

pub(crate) async fn put(
    connection: &mut SqliteConnection,
    variants: &[Variant],
) -> Result<(), Error> {
    for variant in variants {
        model::get(connection, &variant.model).await?;
        sqlx::query(
            "insert into variants (id, model, application, document) values ($1, $2, $3, $4) \
             on conflict (id) do update set model = excluded.model, \
             application = excluded.application, document = excluded.document",
        )
        .bind(variant.id.as_str())
        .bind(variant.model.as_str())
        .bind(variant.application.as_str())
        .bind(document(Entity::Variant, &variant.id, variant)?)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(crate) async fn names_of(
    connection: &mut SqliteConnection,
    model: &ModelId,
) -> Result<Vec<VariantId>, Error> {
    let rows = sqlx::query("select id from variants where model = $1 order by id")
        .bind(model.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| Columns::new(row, Entity::Variant, "id")?.parse("id"))
        .collect()
}

fn variant(row: &SqliteRow) -> Result<Variant, Error> {
    Columns::new(row, Entity::Variant, "id")?.json("document")
}
