//! Which blobs of the artefact store rows refer to, and which are about to be removed.
//!
//! No row refers to a condemned blob, and no row can refer to it until it is acquitted. [`Registry::condemn`] looks for
//! references and condemns in one transaction. Every transaction that adds a reference looks for condemned blobs. Both
//! are transactions of the kind of which one runs at a time.

use std::collections::BTreeSet;

use sextant_types::{ApplicationId, Digest, ModelId};

use crate::{
    DataFile, Entity, Error, Registry,
    database::{Row, Session},
    rows::{Columns, int},
    sql,
};

/// Tables with rows in which digests name blobs: those that [`Registry::blob_uses`] reads.
pub(crate) const NAMING: [&str; 4] = ["models", "pipelines", "steps", "variants"];

/// Digits of a digest in text.
const DIGITS: usize = 64;

/// The role of a blob for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobRole {
    /// A file from which the model was registered.
    Model,
    /// Its validation set.
    Validation,
    /// A file that was made from the model.
    Variant,
    /// A file that the steps of a pipeline need; the pipeline counts as its model.
    Pipeline,
}

/// A row's reference to a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobUse {
    /// The blob.
    pub digest: Digest,
    /// The role of the blob.
    pub role: BlobRole,
    /// The model that it belongs to.
    pub model: ModelId,
    /// The application of the model.
    pub application: ApplicationId,
}

/// A blob that is about to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CondemnedBlob {
    /// The blob.
    pub digest: Digest,
    /// When it was condemned, ms since the Unix epoch.
    pub since_ms: u64,
}

impl Registry {
    /// All references to blobs: those of models first, in the order of their names. A blob may be used several times,
    /// also by one model.
    pub async fn blob_uses(&self) -> Result<Vec<BlobUse>, Error> {
        let mut reader = self.read().await?;
        uses(&mut reader).await
    }

    /// Condemns the blobs that nothing refers to and that are not condemned, and returns them. Until they are
    /// acquitted, every reference to one of them is refused with [`Error::Condemned`].
    pub async fn condemn(&self, digests: &[Digest], now_ms: u64) -> Result<Vec<Digest>, Error> {
        let mut tx = self.begin().await?;
        let used = uses(&mut tx).await?.into_iter();
        let used: BTreeSet<Digest> = used.map(|used| used.digest).collect();
        let mut condemned = Vec::new();
        for digest in digests.iter().filter(|digest| !used.contains(digest)) {
            let row = sql::CONDEMN.bind(digest.to_string()).bind(int(now_ms));
            if tx.run(row).await? > 0 {
                condemned.push(*digest);
            }
        }
        tx.commit().await?;
        Ok(condemned)
    }

    /// The condemned blobs, sorted by digest.
    pub async fn condemned(&self) -> Result<Vec<CondemnedBlob>, Error> {
        let mut reader = self.read().await?;
        let rows = reader.rows((&sql::ALL_CONDEMNED).into()).await?;
        let read = |row: &Row| {
            let columns = Columns::new(row, Entity::Blob, "digest")?;
            Ok(CondemnedBlob {
                digest: columns.parse("digest")?,
                since_ms: columns.count("since_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Allows references to blobs again. A blob that is not condemned is no error.
    pub async fn acquit(&self, digests: &[Digest]) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        for digest in digests {
            tx.run(sql::ACQUIT.bind(digest.to_string())).await?;
        }
        tx.commit().await
    }
}

/// Refuses a reference to a blob that is about to be removed.
pub(crate) async fn refuse_condemned(
    connection: &mut Session,
    digests: impl IntoIterator<Item = Digest>,
) -> Result<(), Error> {
    for digest in digests {
        let row = sql::CONDEMNED.bind(digest.to_string());
        if connection.any(row).await? {
            return Err(Error::Condemned { digest });
        }
    }
    Ok(())
}

/// All digests that appear in a document.
pub(crate) fn mentioned(text: &str) -> impl Iterator<Item = Digest> {
    let words = text.split(|c: char| !c.is_ascii_hexdigit());
    words
        .filter(|word| word.len() == DIGITS)
        .filter_map(|word| word.parse().ok())
}

async fn uses(connection: &mut Session) -> Result<Vec<BlobUse>, Error> {
    let mut uses = Vec::new();
    for row in connection.rows((&sql::BLOBS_OF_MODELS).into()).await? {
        let columns = Columns::new(&row, Entity::Model, "model")?;
        for (column, role) in [
            ("digest", BlobRole::Model),
            ("validation", BlobRole::Validation),
        ] {
            uses.push(used(&columns, columns.parse(column)?, role)?);
        }
        let data: Option<Vec<DataFile>> = columns.optional_json("data")?;
        for file in data.unwrap_or_default() {
            uses.push(used(&columns, file.digest, BlobRole::Model)?);
        }
    }
    for (sql, role) in [
        (&sql::DOCUMENTS_OF_VARIANTS, BlobRole::Variant),
        (&sql::DOCUMENTS_OF_STEPS, BlobRole::Variant),
        (&sql::FILES_OF_PIPELINES, BlobRole::Pipeline),
    ] {
        for row in connection.rows(sql.into()).await? {
            let columns = Columns::new(&row, Entity::Model, "model")?;
            for digest in mentioned(&columns.json_text("document")?) {
                uses.push(used(&columns, digest, role)?);
            }
        }
    }
    Ok(uses)
}

fn used(columns: &Columns<'_>, digest: Digest, role: BlobRole) -> Result<BlobUse, Error> {
    Ok(BlobUse {
        digest,
        role,
        model: columns.parse("model")?,
        application: columns.parse("application")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_wherever_they_stand() {
        let (one, other) = ("ab".repeat(32), "0".repeat(64));
        let text = format!(
            r#"{{"artefact": "{one}", "deep": [{{"x": "sha256:{other}"}}], "long": "{one}0", "short": "ab"}}"#
        );
        let found: Vec<String> = mentioned(&text).map(|digest| digest.to_string()).collect();
        assert_eq!(found, [one, other]);
    }
}
