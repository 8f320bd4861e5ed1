//! Variants: one document each, beside the columns by which they are found. A variant is read with its model's release.

use std::collections::BTreeMap;

use sextant_types::{ApplicationId, ModelId, Release, Variant, VariantId};

use crate::{
    Entity, Error, Registry,
    database::{Query, Row, Session},
    model, profile,
    rows::{Columns, document},
    sql,
};

impl Registry {
    /// Inserts or replaces variants, all or none. Their models must exist.
    pub async fn put_variants(&self, variants: &[Variant]) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        put(&mut tx, variants).await?;
        tx.commit().await
    }

    /// Makes a variant answer one query at a time from now on, for this reason.
    pub async fn keep_apart(&self, id: &VariantId, reason: &str) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        let found = find(&mut tx, id).await?;
        let mut variant = found.ok_or_else(|| Error::not_found(Entity::Variant, id))?;
        variant.keep_apart(reason.to_owned());
        put(&mut tx, &[variant]).await?;
        tx.commit().await
    }

    /// [`put_variants`](Self::put_variants) for variants that were read some time ago and got other marks. A variant
    /// that was excluded from batches since then stays excluded; a variant that was deleted since then stays deleted.
    pub async fn renew_variants(&self, variants: &[Variant]) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        for variant in variants {
            let Some(stored) = find(&mut tx, &variant.id).await? else {
                continue;
            };
            let mut renewed = variant.clone();
            if let (Some(reason), None) = (stored.apart, &renewed.apart) {
                renewed.keep_apart(reason);
            }
            put(&mut tx, &[renewed]).await?;
        }
        tx.commit().await
    }

    /// One variant, whatever the status of its model.
    pub async fn variant(&self, id: &VariantId) -> Result<Variant, Error> {
        let mut reader = self.read().await?;
        let found = find(&mut reader, id).await?.into_iter().collect();
        let query = sql::PROFILES_OF_VARIANT.bind(id.as_str());
        let mut found = profile::add(&mut reader, query, found).await?;
        found
            .pop()
            .ok_or_else(|| Error::not_found(Entity::Variant, id))
    }

    /// A model's variants, whatever its status, sorted by name.
    pub async fn variants_of(&self, model: &ModelId) -> Result<Vec<Variant>, Error> {
        let mut reader = self.read().await?;
        let query = sql::VARIANTS_OF_MODEL.bind(model.as_str());
        let variants = read(&mut reader, query).await?;
        let query = sql::PROFILES_OF_MODEL.bind(model.as_str());
        profile::add(&mut reader, query, variants).await
    }

    /// The variants of all ready models, sorted by name: those to publish.
    pub async fn ready_variants(&self) -> Result<Vec<Variant>, Error> {
        let mut reader = self.read().await?;
        let variants = read(&mut reader, (&sql::READY_VARIANTS).into()).await?;
        profile::add(&mut reader, (&sql::PROFILES).into(), variants).await
    }

    /// The variants of an application's ready models, sorted by name. Reads nothing of other applications.
    pub async fn ready_variants_of(
        &self,
        application: &ApplicationId,
    ) -> Result<Vec<Variant>, Error> {
        let mut reader = self.read().await?;
        let query = sql::READY_VARIANTS_OF_APPLICATION.bind(application.as_str());
        let variants = read(&mut reader, query).await?;
        let query = sql::PROFILES_OF_APPLICATION.bind(application.as_str());
        profile::add(&mut reader, query, variants).await
    }

    /// The releases of the variants of all ready models, or of those of one application.
    pub async fn ready_releases(
        &self,
        application: Option<&ApplicationId>,
    ) -> Result<BTreeMap<VariantId, Release>, Error> {
        let query = match application {
            Some(application) => sql::READY_RELEASES_OF_APPLICATION.bind(application.as_str()),
            None => (&sql::READY_RELEASES).into(),
        };
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(released).collect()
    }
}

pub(crate) async fn put(connection: &mut Session, variants: &[Variant]) -> Result<(), Error> {
    for variant in variants {
        // Profiles on other types have their own rows; the release and the registrant are the model's.
        let variant = &Variant {
            profiles: BTreeMap::new(),
            release: Release::default(),
            foreign: false,
            ..variant.clone()
        };
        model::get(connection, &variant.model).await?;
        connection
            .run(
                sql::PUT_VARIANT
                    .bind(variant.id.as_str())
                    .bind(variant.model.as_str())
                    .bind(variant.application.as_str())
                    .bind(document(Entity::Variant, &variant.id, variant)?),
            )
            .await?;
    }
    Ok(())
}

pub(crate) async fn names_of(
    connection: &mut Session,
    model: &ModelId,
) -> Result<Vec<VariantId>, Error> {
    let rows = connection
        .rows(sql::VARIANT_NAMES.bind(model.as_str()))
        .await?;
    rows.iter().map(name).collect()
}

async fn find(connection: &mut Session, id: &VariantId) -> Result<Option<Variant>, Error> {
    let row = connection.row(sql::VARIANT.bind(id.as_str())).await?;
    row.as_ref().map(variant).transpose()
}

async fn read(reader: &mut Session, query: Query) -> Result<Vec<Variant>, Error> {
    let rows = reader.rows(query).await?;
    rows.iter().map(variant).collect()
}

fn name(row: &Row) -> Result<VariantId, Error> {
    Columns::new(row, Entity::Variant, "id")?.parse("id")
}

fn released(row: &Row) -> Result<(VariantId, Release), Error> {
    let columns = Columns::new(row, Entity::Variant, "id")?;
    let release = model::release(&columns, &columns.parse("model")?)?;
    Ok((columns.parse("id")?, release))
}

fn variant(row: &Row) -> Result<Variant, Error> {
    let columns = Columns::new(row, Entity::Variant, "id")?;
    let variant: Variant = columns.json("document")?;
    Ok(Variant {
        release: model::release(&columns, &variant.model)?,
        foreign: model::is_foreign(&columns)?,
        ..variant
    })
}
