//! Profiles of variants on types of devices other than the one that registered them.
//!
//! A variant is read with these profiles and written without them. Its own row does not contain
//! them, so that a repeated registration does not change them.

use std::collections::BTreeMap;

use sextant_types::{DeviceTypeName, Profile, Variant, VariantId};

use crate::{
    Entity, Error, Failure, Registry,
    database::{Query, Session},
    rows::{Columns, document, int},
    sql,
};

/// A failure to measure a variant on a type of device. No measurement has succeeded since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedProfile {
    /// The variant.
    pub variant: VariantId,
    /// The type of device.
    pub device_type: DeviceTypeName,
    /// Number of consecutive failures, at least 1.
    pub failures: u32,
    /// The last failure.
    pub failure: Option<Failure>,
    /// When that was, ms since the Unix epoch.
    pub updated_ms: u64,
}

impl Registry {
    /// Stores a profile and replaces an earlier one. The variant must exist.
    pub async fn put_profile(
        &self,
        variant: &VariantId,
        device_type: &DeviceTypeName,
        profile: &Profile,
        now_ms: u64,
    ) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        check(&mut tx, variant).await?;
        let statement = sql::PUT_PROFILE
            .bind(variant.as_str())
            .bind(device_type.as_str())
            .bind(document(Entity::Variant, variant, profile)?)
            .bind(int(now_ms));
        tx.run(statement).await?;
        tx.commit().await
    }

    /// Counts a failure to measure. An earlier profile stays. The variant must exist.
    pub async fn fail_profile(
        &self,
        variant: &VariantId,
        device_type: &DeviceTypeName,
        failure: &Failure,
        now_ms: u64,
    ) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        check(&mut tx, variant).await?;
        let statement = sql::FAIL_PROFILE
            .bind(variant.as_str())
            .bind(device_type.as_str())
            .bind(failure.code.as_str())
            .bind(failure.text())
            .bind(int(now_ms));
        tx.run(statement).await?;
        tx.commit().await
    }

    /// All failures, sorted by variant and type.
    pub async fn failed_profiles(&self) -> Result<Vec<FailedProfile>, Error> {
        let mut reader = self.read().await?;
        let rows = reader.rows((&sql::FAILED_PROFILES).into()).await?;
        let failed = rows.iter().map(|row| {
            let columns = Columns::new(row, Entity::Variant, "variant")?;
            Ok(FailedProfile {
                variant: columns.parse("variant")?,
                device_type: columns.parse("device_type")?,
                failures: columns.count("failures")?,
                failure: columns.failure()?,
                updated_ms: columns.count("updated_ms")?,
            })
        });
        failed.collect()
    }
}

/// Adds to variants their profiles, which `query` reads; it may read more.
pub(crate) async fn add(
    reader: &mut Session,
    query: Query,
    mut variants: Vec<Variant>,
) -> Result<Vec<Variant>, Error> {
    let mut profiles: BTreeMap<VariantId, BTreeMap<DeviceTypeName, Profile>> = BTreeMap::new();
    for row in reader.rows(query).await? {
        let columns = Columns::new(&row, Entity::Variant, "variant")?;
        let of = profiles.entry(columns.parse("variant")?).or_default();
        of.insert(columns.parse("device_type")?, columns.json("document")?);
    }
    for variant in &mut variants {
        variant.profiles = profiles.remove(&variant.id).unwrap_or_default();
    }
    Ok(variants)
}

async fn check(tx: &mut Session, variant: &VariantId) -> Result<(), Error> {
    let row = tx.row(sql::VARIANT.bind(variant.as_str())).await?;
    let found = row.map(drop);
    found.ok_or_else(|| Error::not_found(Entity::Variant, variant))
}
