//! Models.

mod step;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_types::{
    ApplicationId, Code, Constants, Digest, ModelId, Padding, Release, Renames, Stage, VariantId,
};

use crate::{
    Entity, Error, Job, NewJob, OnceKey, Registry, application, blob,
    database::{Row, Session},
    feedback, job, once, pipeline,
    rows::{Columns, document, int},
    sql, variant,
    version::{self, Place},
};

pub use step::Step;
pub(crate) use step::put_step;

/// The status of a model's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelStatus {
    /// Variants are being generated and measured.
    Registering,
    /// Its variants answer queries.
    Ready,
    /// Registration failed; the name may be registered again.
    Failed,
}

impl ModelStatus {
    /// `registering`, `ready`, `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registering => "registering",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Registering, Self::Ready, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == name)
    }
}

/// Why a registration or a job failed, as it is reported to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable code.
    pub code: Code,
    /// What happened and what to do.
    pub message: String,
}

impl Failure {
    /// Pairs a code with its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Its message in a form that every database can hold. It may quote a file, which may contain anything. If the
    /// database refused the message, the failed job would never end.
    pub(crate) fn text(&self) -> String {
        self.message.replace('\0', "\u{fffd}")
    }
}

/// A file beside an ONNX file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its name, with which tensors refer to it.
    pub name: String,
    /// Its digest in the artefact store.
    pub digest: Digest,
    /// Its size, bytes.
    pub size_bytes: u64,
}

/// The name, among the files beside a model, of the graph of its metric `custom`.
pub const METRIC_FILE: &str = "<metric>";

/// The mark in place of labels, for a model whose validation set has none.
pub const NO_LABELS: &str = "none";

/// The output on which a model's accuracy is measured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScoredOutput {
    /// Its name.
    pub output: String,
    /// The class of each of its columns, if the model's owner or its file states it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// Who registered a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registrant {
    /// Their name in the audit record: the id of a key, `administrator`, or `anonymous` if no keys are required.
    pub name: String,
    /// Whether they have all rights.
    pub is_administrator: bool,
}

/// A registered model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Its id.
    pub id: ModelId,
    /// The application under which it was registered.
    pub application: ApplicationId,
    /// Its ONNX file.
    pub digest: Digest,
    /// Its validation set.
    pub validation: Digest,
    /// Size of the ONNX file, bytes.
    pub size_bytes: u64,
    /// How its inputs may be padded, as declared.
    pub padding: Option<Padding>,
    /// Files beside its ONNX file, in which tensors keep their data.
    pub data: Vec<DataFile>,
    /// The outputs that are served, as declared, starting with the scored one; empty for all.
    pub outputs: Vec<String>,
    /// Inputs that are the same in every query, as declared.
    pub constants: Constants,
    /// The names of its classes, as declared; empty if none were declared.
    pub classes: Vec<String>,
    /// The names of its inputs and outputs in place of those in its file, as declared.
    pub names: Renames,
    /// Whether its validation set was declared to have no labels.
    pub unlabelled: bool,
    /// The status of its registration.
    pub status: ModelStatus,
    /// Why its registration failed.
    pub error: Option<Failure>,
    /// When it was registered, ms since the Unix epoch.
    pub created_ms: u64,
    /// Its version, its name, and its role in answering. Before the model is ready, the stage is the requested one.
    pub release: Release,
    /// The number of the version that it replaced as the current one.
    pub replaced: Option<u32>,
    /// The rules by which it is promoted or rolled back automatically while it is tried. This crate does not read them.
    pub rules: Option<Value>,
    /// Who registered it; `None` if an earlier version of the service did, which did not record it.
    pub registered_by: Option<Registrant>,
}

/// A model to register.
#[derive(Debug, Clone, PartialEq)]
pub struct NewModel {
    /// Its name. If its application has models of that name, it is their next version.
    pub name: ModelId,
    /// The requested number of its version; `None`: one more than the greatest present number.
    pub version: Option<u32>,
    /// Whether it becomes current as soon as it is ready, although another version is.
    pub current: bool,
    /// The application under which to register it; it must exist.
    pub application: ApplicationId,
    /// Its ONNX file.
    pub digest: Digest,
    /// Its validation set.
    pub validation: Digest,
    /// Size of the ONNX file, bytes.
    pub size_bytes: u64,
    /// How its inputs may be padded.
    pub padding: Option<Padding>,
    /// Files beside its ONNX file, in which tensors keep their data.
    pub data: Vec<DataFile>,
    /// The outputs that are served, starting with the scored one; empty for all.
    pub outputs: Vec<String>,
    /// Inputs that are the same in every query.
    pub constants: Constants,
    /// The names of its classes; empty to use those in the file.
    pub classes: Vec<String>,
    /// The names of its inputs and outputs in place of those in its file.
    pub names: Renames,
    /// Whether its validation set is declared to have no labels.
    pub unlabelled: bool,
    /// Who registers it.
    pub registered_by: Option<Registrant>,
}

/// The answer to the creation of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Creation {
    /// The present row.
    pub model: Model,
    /// Whether the call created it; `false`: the same content was registered before.
    pub created: bool,
}

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// The present model.
    pub model: Model,
    /// The job that registers or registered it.
    pub job: Job,
    /// Whether the call began the registration; `false`: the same content was registered before.
    pub created: bool,
}

impl Model {
    /// Whether it was registered with a key that is not an administrator's.
    pub fn is_foreign(&self) -> bool {
        let by = self.registered_by.as_ref();
        by.is_some_and(|it| !it.is_administrator)
    }
}

impl NewModel {
    /// Every file to which it refers.
    pub fn files(&self) -> impl Iterator<Item = Digest> {
        let data = self.data.iter().map(|file| file.digest);
        [self.digest, self.validation].into_iter().chain(data)
    }
}

impl Registry {
    /// Notes which output of a model is scored, and the classes of its columns.
    pub async fn set_scored(&self, model: &ModelId, scored: &ScoredOutput) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        let text = document(Entity::Model, model, scored)?;
        let written = tx
            .run(sql::SET_SCORED.bind(model.as_str()).bind(text))
            .await?;
        if written == 0 {
            return Err(Error::not_found(Entity::Model, model));
        }
        tx.commit().await
    }

    /// The scored output of a model; `None` if its registration has not determined it yet.
    pub async fn scored_output(&self, model: &ModelId) -> Result<Option<ScoredOutput>, Error> {
        let mut reader = self.read().await?;
        let row = reader.row(sql::SCORED.bind(model.as_str())).await?;
        let row = row.ok_or_else(|| Error::not_found(Entity::Model, model))?;
        Columns::new(&row, Entity::Model, "id")?.optional_json("scored")
    }

    /// The classes of the scored output's columns in the other ready models of the application, as the first one with
    /// classes states them; empty if none states them.
    pub async fn classes_before(&self, model: &Model) -> Result<Vec<String>, Error> {
        let mut reader = self.read().await?;
        let others = sql::SCORED_BEFORE
            .bind(model.application.as_str())
            .bind(model.id.as_str());
        for row in reader.rows(others).await? {
            let scored = Columns::new(&row, Entity::Model, "id")?;
            let scored: Option<ScoredOutput> = scored.optional_json("scored")?;
            if let Some(scored) = scored.filter(|it| !it.classes.is_empty()) {
                return Ok(scored.classes);
            }
        }
        Ok(Vec::new())
    }

    /// Creates a model's row with status [`ModelStatus::Registering`] and the job that registers it, in one
    /// transaction: a crash leaves both or neither. The model is a version of those of its name in its application. The
    /// call is idempotent for the same application, name, file, validation set, padding, outputs, constants, classes
    /// and names of tensors: then it returns the existing version and job. A version whose registration failed is
    /// replaced, with its steps and variants, if it is the last one or the requested one. [`Error::VersionExists`] if
    /// the requested version has other content. [`Error::Condemned`] if one of the model's files is being removed. The
    /// job gets the model's id, also in its `spec`, under `model`.
    pub async fn register_model(
        &self,
        model: &NewModel,
        job: &NewJob,
        now_ms: u64,
    ) -> Result<Registration, Error> {
        self.register_model_once(model, job, None, now_ms).await
    }

    /// [`register_model`](Self::register_model), unless an earlier request with the same key has begun a registration
    /// of a model that still exists: then that one is returned in its present state.
    pub async fn register_model_once(
        &self,
        model: &NewModel,
        job: &NewJob,
        once: Option<&OnceKey>,
        now_ms: u64,
    ) -> Result<Registration, Error> {
        let mut tx = self.begin().await?;
        if let Some(once) = once
            && let Some(job) = once::recall(&mut tx, once, now_ms).await?
            && let Some(id) = &job.model
            && let Some(model) = find(&mut tx, id).await?
        {
            let created = false;
            return Ok(Registration {
                model,
                job,
                created,
            });
        }
        let Creation { model, created } = create(&mut tx, model, now_ms).await?;
        let earlier = if created {
            None
        } else {
            job::registration_of(&mut tx, &model.id).await?
        };
        let job = match earlier {
            Some(earlier) => earlier,
            None => job::create(&mut tx, &job.clone().named(&model.id), now_ms).await?,
        };
        if let Some(once) = once {
            once::remember(&mut tx, once, &job.id, now_ms).await?;
        }
        self.commit_work(tx).await?;
        Ok(Registration {
            model,
            job,
            created,
        })
    }

    /// One model, by its id.
    pub async fn model(&self, id: &ModelId) -> Result<Model, Error> {
        let mut reader = self.read().await?;
        get(&mut reader, id).await
    }

    /// All models, or those of one application, sorted by name.
    pub async fn models(&self, application: Option<&ApplicationId>) -> Result<Vec<Model>, Error> {
        let query = match application {
            Some(application) => sql::MODELS_OF_APPLICATION.bind(application.as_str()),
            None => (&sql::MODELS).into(),
        };
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(model).collect()
    }

    /// Removes a model with its variants and steps. Returns the variants' names, which must be retired. Jobs that
    /// extend it are cancelled. [`Error::InUse`] while another job of the model is unfinished. With the application's
    /// last model its signature is removed as well.
    pub async fn delete_model(&self, id: &ModelId, now_ms: u64) -> Result<Vec<VariantId>, Error> {
        let mut tx = self.begin().await?;
        let model = get(&mut tx, id).await?;
        version::refuse_current(&mut tx, &model).await?;
        job::cancel_extensions(&mut tx, id, now_ms).await?;
        if job::unfinished_of(&mut tx, id).await? {
            return Err(Error::in_use(Entity::Model, id, "it has unfinished jobs"));
        }
        let variants = variant::names_of(&mut tx, id).await?;
        tx.run(sql::DELETE_MODEL.bind(id.as_str())).await?;
        tx.run(sql::FORGET_SIGNATURE.bind(model.application.as_str()))
            .await?;
        self.commit_work(tx).await?;
        Ok(variants)
    }
}

pub(crate) async fn get(connection: &mut Session, id: &ModelId) -> Result<Model, Error> {
    find(connection, id)
        .await?
        .ok_or_else(|| Error::not_found(Entity::Model, id))
}

/// Whether the model is still the one that the caller has read.
pub(crate) async fn is_same(connection: &mut Session, known: &Model) -> Result<bool, Error> {
    Ok(find(connection, &known.id).await?.as_ref() == Some(known))
}

/// Sets a model's status. A model that does not exist is no error.
pub(crate) async fn set_status(
    connection: &mut Session,
    id: &ModelId,
    status: ModelStatus,
    failure: Option<&Failure>,
) -> Result<(), Error> {
    connection
        .run(
            sql::SET_MODEL_STATUS
                .bind(id.as_str())
                .bind(status.as_str())
                .bind(failure.map(|failure| failure.code.as_str()))
                .bind(failure.map(Failure::text).as_deref()),
        )
        .await?;
    Ok(())
}

/// The model of that id, if it exists.
pub(crate) async fn find(connection: &mut Session, id: &ModelId) -> Result<Option<Model>, Error> {
    let row = connection.row(sql::MODEL.bind(id.as_str())).await?;
    row.as_ref().map(model).transpose()
}

async fn create(connection: &mut Session, new: &NewModel, now_ms: u64) -> Result<Creation, Error> {
    application::get(connection, &new.application).await?;
    let of = (&new.application, &new.name);
    let place = match version::place(&version::of(connection, of).await?, new)? {
        Place::Known(model) => {
            let created = false;
            return Ok(Creation {
                model: *model,
                created,
            });
        }
        Place::Free(place) => place,
    };
    if let Some(failed) = &place.failed {
        // This also removes its steps and variants.
        connection
            .run(sql::DELETE_MODEL.bind(failed.as_str()))
            .await?;
    }
    let id = match place.failed {
        Some(id) => id,
        None => version::new_id(connection, new, place.version).await?,
    };
    blob::refuse_condemned(connection, new.files()).await?;
    pipeline::refuse_models(connection, &new.application).await?;
    // Feedback on a deleted model of this id does not apply to the new model.
    feedback::forget_model(connection, (&new.application, &id)).await?;
    let wish = match new.current {
        true => Stage::Current,
        false => Stage::Candidate,
    };
    let padding = new.padding.as_ref();
    let padding = padding.map(|padding| document(Entity::Model, &new.name, padding));
    let outputs = (!new.outputs.is_empty()).then_some(&new.outputs);
    let outputs = outputs.map(|outputs| document(Entity::Model, &new.name, outputs));
    let constants = (!new.constants.is_empty()).then_some(&new.constants);
    let constants = constants.map(|constants| document(Entity::Model, &new.name, constants));
    let classes = (!new.classes.is_empty()).then_some(&new.classes);
    let classes = classes.map(|classes| document(Entity::Model, &new.name, classes));
    let names = (!new.names.is_empty()).then_some(&new.names);
    let names = names.map(|names| document(Entity::Model, &new.name, names));
    let data = (!new.data.is_empty()).then_some(&new.data);
    let data = data.map(|data| document(Entity::Model, &new.name, data));
    connection
        .run(
            sql::CREATE_MODEL
                .bind(id.as_str())
                .bind(new.application.as_str())
                .bind(new.digest.to_string())
                .bind(new.validation.to_string())
                .bind(int(new.size_bytes))
                .bind(ModelStatus::Registering.as_str())
                .bind(int(now_ms))
                .bind(padding.transpose()?)
                .bind(outputs.transpose()?)
                .bind(data.transpose()?)
                .bind(classes.transpose()?)
                .bind(constants.transpose()?)
                .bind(new.unlabelled.then_some(NO_LABELS))
                .bind(names.transpose()?)
                .bind(new.name.as_str())
                .bind(i64::from(place.version))
                .bind(wish.as_str())
                .bind(new.registered_by.as_ref().map(|it| it.name.as_str()))
                .bind(
                    new.registered_by
                        .as_ref()
                        .map(|it| i64::from(it.is_administrator)),
                ),
        )
        .await?;
    Ok(Creation {
        model: get(connection, &id).await?,
        created: true,
    })
}

pub(crate) fn model(row: &Row) -> Result<Model, Error> {
    let columns = Columns::new(row, Entity::Model, "id")?;
    Ok(Model {
        id: columns.parse("id")?,
        application: columns.parse("application")?,
        digest: columns.parse("digest")?,
        validation: columns.parse("validation")?,
        size_bytes: columns.count("size_bytes")?,
        padding: columns.optional_json("padding")?,
        outputs: columns.optional_json("outputs")?.unwrap_or_default(),
        constants: columns.optional_json("constants")?.unwrap_or_default(),
        classes: columns.optional_json("classes")?.unwrap_or_default(),
        names: columns.optional_json("names")?.unwrap_or_default(),
        unlabelled: columns.optional_text("labels")?.as_deref() == Some(NO_LABELS),
        data: columns.optional_json("data")?.unwrap_or_default(),
        status: columns.one_of("status", ModelStatus::parse)?,
        error: columns.failure()?,
        created_ms: columns.count("created_ms")?,
        release: release(&columns, &columns.parse("id")?)?,
        replaced: columns.optional_count("replaced")?,
        rules: columns.optional_json("rules")?,
        registered_by: registrant(&columns)?,
    })
}

fn registrant(columns: &Columns<'_>) -> Result<Option<Registrant>, Error> {
    let name = columns.optional_text("registered_by")?;
    let is_administrator = !is_foreign(columns)?;
    Ok(name.map(|name| Registrant {
        name,
        is_administrator,
    }))
}

/// Whether the columns of a model's row say that it was registered with a key that is not an administrator's.
pub(crate) fn is_foreign(columns: &Columns<'_>) -> Result<bool, Error> {
    let by_admin: Option<u8> = columns.optional_count("registered_by_admin")?;
    Ok(by_admin == Some(0))
}

/// The release of a model, from the columns of its row.
pub(crate) fn release(columns: &Columns<'_>, id: &ModelId) -> Result<Release, Error> {
    let name: Option<ModelId> = columns.parse_optional("name")?;
    let percent = columns.optional_real("percent")?;
    let stage = |name: &str| Stage::parse(name, percent);
    Ok(Release {
        name: name.filter(|name| name != id),
        version: columns.optional_count("version")?.unwrap_or(1),
        stage: columns.optional_one_of("stage", stage)?.unwrap_or_default(),
        since_ms: columns.optional_count("stage_since_ms")?.unwrap_or(0),
    })
}
