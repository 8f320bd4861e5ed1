//! Pipelines: applications that several steps answer. Every change makes a new version; the latest one answers.

use std::collections::BTreeMap;

use sextant_types::{ApplicationId, Digest};

use crate::{
    Application, Entity, Error, Registry, application, blob,
    database::{Row, Session},
    rows::{Columns, document, int},
    sql,
};

/// One version of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// The application that the pipeline is.
    pub application: ApplicationId,
    /// Its number, from 1.
    pub version: u32,
    /// The definition as it was written. This crate does not read it.
    pub definition: serde_json::Value,
    /// The files that its steps need: blobs by the paths in the definition.
    pub files: BTreeMap<String, Digest>,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_ms: u64,
}

/// A version to make.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPipeline {
    /// The definition.
    pub definition: serde_json::Value,
    /// The files that its steps need.
    pub files: BTreeMap<String, Digest>,
}

/// The measurements of a pipeline as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineMeasure {
    /// The version of the definition that was measured.
    pub version: u32,
    /// What was measured, and the models and versions that its steps used then, as the front end writes them.
    pub followed: String,
    /// The measurements. This crate does not read them.
    pub figures: serde_json::Value,
    /// When it was measured, milliseconds since the Unix epoch.
    pub measured_ms: u64,
}

impl Registry {
    /// The last measurements of each pipeline.
    pub async fn pipeline_measures(
        &self,
    ) -> Result<BTreeMap<ApplicationId, PipelineMeasure>, Error> {
        let mut reader = self.read().await?;
        let rows = reader.rows((&sql::PIPELINE_MEASURES).into()).await?;
        let measures = rows.iter().map(|row| {
            let columns = Columns::new(row, Entity::Pipeline, "application")?;
            let measure = PipelineMeasure {
                version: columns.count("version")?,
                followed: columns.text("followed")?,
                figures: columns.json("figures")?,
                measured_ms: columns.count("measured_ms")?,
            };
            Ok((columns.parse("application")?, measure))
        });
        measures.collect()
    }

    /// Stores the measurements of a pipeline and replaces earlier ones.
    pub async fn put_pipeline_measure(
        &self,
        id: &ApplicationId,
        measure: &PipelineMeasure,
    ) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        if latest(&mut tx, id).await?.is_none() {
            return Err(Error::not_found(Entity::Pipeline, id));
        }
        let row = sql::PUT_PIPELINE_MEASURE
            .bind(id.as_str())
            .bind(i64::from(measure.version))
            .bind(measure.followed.as_str())
            .bind(document(Entity::Pipeline, id, &measure.figures)?)
            .bind(int(measure.measured_ms));
        tx.run(row).await?;
        tx.commit().await
    }

    /// Creates an application that is a pipeline, in its first version. Returns it and whether it is new. If the
    /// pipeline exists with this definition as its latest, nothing changes. If anything else has that name, it is
    /// [`Error::Exists`].
    pub async fn create_pipeline(
        &self,
        application: &Application,
        new: &NewPipeline,
        now_ms: u64,
    ) -> Result<(Pipeline, bool), Error> {
        let mut tx = self.begin().await?;
        if let Some(known) = latest(&mut tx, &application.id).await? {
            let same = known.definition == new.definition && known.files == new.files;
            return match same {
                true => Ok((known, false)),
                false => Err(Error::exists(Entity::Pipeline, &application.id)),
            };
        }
        if application::find(&mut tx, &application.id).await?.is_some() {
            return Err(Error::exists(Entity::Application, &application.id));
        }
        application::insert(&mut tx, application).await?;
        let made = insert(&mut tx, &application.id, 1, new, now_ms).await?;
        tx.commit().await?;
        Ok((made, true))
    }

    /// Makes the next version of a pipeline by applying `change` to the latest one, and returns it. If `change`
    /// refuses, nothing changes: the inner result has the reason. A change to the same definition makes no version.
    pub async fn change_pipeline<E>(
        &self,
        id: &ApplicationId,
        change: impl FnOnce(&Pipeline) -> Result<NewPipeline, E> + Send,
        now_ms: u64,
    ) -> Result<Result<Pipeline, E>, Error> {
        let mut tx = self.begin().await?;
        let known = latest(&mut tx, id).await?;
        let known = known.ok_or_else(|| Error::not_found(Entity::Pipeline, id))?;
        let new = match change(&known) {
            Ok(new) => new,
            Err(refused) => return Ok(Err(refused)),
        };
        if known.definition == new.definition && known.files == new.files {
            return Ok(Ok(known));
        }
        let made = insert(&mut tx, id, known.version + 1, &new, now_ms).await?;
        tx.commit().await?;
        Ok(Ok(made))
    }

    /// The latest version of every pipeline, sorted by name.
    pub async fn pipelines(&self) -> Result<Vec<Pipeline>, Error> {
        let rows = self.read().await?.rows((&sql::PIPELINES).into()).await?;
        rows.iter().map(read).collect()
    }

    /// The latest version of a pipeline.
    pub async fn pipeline(&self, id: &ApplicationId) -> Result<Pipeline, Error> {
        let mut reader = self.read().await?;
        let found = latest(&mut reader, id).await?;
        found.ok_or_else(|| Error::not_found(Entity::Pipeline, id))
    }

    /// All versions of a pipeline, the latest first.
    pub async fn pipeline_versions(&self, id: &ApplicationId) -> Result<Vec<Pipeline>, Error> {
        let mut reader = self.read().await?;
        let rows = reader
            .rows(sql::PIPELINE_VERSIONS.bind(id.as_str()))
            .await?;
        match rows.is_empty() {
            true => Err(Error::not_found(Entity::Pipeline, id)),
            false => rows.iter().map(read).collect(),
        }
    }

    /// Removes a pipeline with all its versions and the application, and cancels the jobs that measure it. Refused with
    /// [`Error::InUse`] while it has other unfinished jobs; then nothing changes. A pipeline that `check` refuses also
    /// stays: the inner result has the reason.
    pub async fn delete_pipeline<E>(
        &self,
        id: &ApplicationId,
        check: impl FnOnce(&Pipeline) -> Result<(), E> + Send,
        now_ms: u64,
    ) -> Result<Result<(), E>, Error> {
        let mut tx = self.begin().await?;
        let known = latest(&mut tx, id).await?;
        let known = known.ok_or_else(|| Error::not_found(Entity::Pipeline, id))?;
        if let Err(refused) = check(&known) {
            return Ok(Err(refused));
        }
        let cancel = sql::CANCEL_MEASURES.bind(id.as_str()).bind(int(now_ms));
        tx.run(cancel).await?;
        application::remove(&mut tx, id).await?;
        self.commit_work(tx).await?;
        Ok(Ok(()))
    }
}

/// Refuses a model of an application that is a pipeline: its steps answer.
pub(crate) async fn refuse_models(
    connection: &mut Session,
    application: &ApplicationId,
) -> Result<(), Error> {
    match connection
        .any(sql::PIPELINE.bind(application.as_str()))
        .await?
    {
        true => Err(Error::in_use(
            Entity::Application,
            application,
            "it is a pipeline, which its steps answer and no model",
        )),
        false => Ok(()),
    }
}

async fn latest(connection: &mut Session, id: &ApplicationId) -> Result<Option<Pipeline>, Error> {
    let row = connection.row(sql::PIPELINE.bind(id.as_str())).await?;
    row.as_ref().map(read).transpose()
}

async fn insert(
    connection: &mut Session,
    id: &ApplicationId,
    version: u32,
    new: &NewPipeline,
    now_ms: u64,
) -> Result<Pipeline, Error> {
    blob::refuse_condemned(connection, new.files.values().copied()).await?;
    let files = new
        .files
        .iter()
        .map(|(path, digest)| (path.clone(), digest.to_string()));
    let files: BTreeMap<String, String> = files.collect();
    let row = sql::ADD_PIPELINE
        .bind(id.as_str())
        .bind(i64::from(version))
        .bind(document(Entity::Pipeline, id, &new.definition)?)
        .bind(document(Entity::Pipeline, id, &files)?)
        .bind(int(now_ms));
    connection.run(row).await?;
    Ok(Pipeline {
        application: id.clone(),
        version,
        definition: new.definition.clone(),
        files: new.files.clone(),
        created_ms: now_ms,
    })
}

fn read(row: &Row) -> Result<Pipeline, Error> {
    let columns = Columns::new(row, Entity::Pipeline, "application")?;
    let files: BTreeMap<String, String> = columns.json("files")?;
    let parsed = files.into_iter().map(|(path, digest)| {
        let digest = digest
            .parse()
            .map_err(|error: <Digest as std::str::FromStr>::Err| Error::Corrupt {
                entity: Entity::Pipeline,
                id: path.clone(),
                column: "files",
                reason: error.to_string(),
            })?;
        Ok((path, digest))
    });
    Ok(Pipeline {
        application: columns.parse("application")?,
        version: columns.count("version")?,
        definition: columns.json("definition")?,
        files: parsed.collect::<Result<_, Error>>()?,
        created_ms: columns.count("created_ms")?,
    })
}
