//! Applications.

use std::collections::BTreeMap;

use sextant_types::{
    ApplicationId, FeedbackSettings, Metric, ModelId, Resources, Signature, Targets,
};

use crate::{
    Entity, Error, Registry,
    database::{Json, Row, Session},
    rows::{Columns, document},
    sql,
};

/// An application: the metric of its models and the defaults of its queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// Its name.
    pub id: ApplicationId,
    /// The metric by which accuracy is measured.
    pub metric: Metric,
    /// A description for people.
    pub description: String,
    /// Targets of queries that state none.
    pub default_targets: Targets,
    /// Inputs and outputs that all its models share; `None` until the first model fixes them.
    pub signature: Option<Signature>,
    /// The resources of the fleet that it may use.
    pub resources: Resources,
    /// Named targets that queries may use instead of stating their own.
    pub presets: BTreeMap<String, Targets>,
    /// The feedback that it accepts; `None` accepts none.
    pub feedback: Option<FeedbackSettings>,
}

impl Registry {
    /// Creates an application and returns whether it is new. Creating it again with the same settings changes nothing;
    /// with other settings it is [`Error::Exists`]. A given signature is fixed from the start. If no signature is
    /// given, that of an existing application is not compared; the same holds for resources, presets and feedback.
    pub async fn create_application(&self, application: &Application) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        if let Some(known) = find(&mut tx, &application.id).await? {
            let signature = known.signature.clone();
            let same = Application {
                signature: application.signature.clone().or(signature),
                resources: match application.resources.is_default() {
                    true => known.resources,
                    false => application.resources,
                },
                presets: match application.presets.is_empty() {
                    true => known.presets.clone(),
                    false => application.presets.clone(),
                },
                feedback: application
                    .feedback
                    .clone()
                    .or_else(|| known.feedback.clone()),
                ..application.clone()
            };
            return if known == same {
                Ok(false)
            } else {
                Err(Error::exists(Entity::Application, &application.id))
            };
        }
        insert(&mut tx, application).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// One application.
    pub async fn application(&self, id: &ApplicationId) -> Result<Application, Error> {
        let mut reader = self.read().await?;
        get(&mut reader, id).await
    }

    /// All applications, sorted by name.
    pub async fn applications(&self) -> Result<Vec<Application>, Error> {
        let rows = self.read().await?.rows((&sql::APPLICATIONS).into()).await?;
        rows.iter().map(application).collect()
    }

    /// Removes an application. Refused with [`Error::InUse`] while it has models or unfinished jobs. An application
    /// that `check` refuses also stays: the inner result has the reason.
    pub async fn delete_application<E>(
        &self,
        id: &ApplicationId,
        check: impl FnOnce(&Application) -> Result<(), E> + Send,
    ) -> Result<Result<(), E>, Error> {
        let mut tx = self.begin().await?;
        let known = get(&mut tx, id).await?;
        if let Err(refused) = check(&known) {
            return Ok(Err(refused));
        }
        remove(&mut tx, id).await?;
        tx.commit().await?;
        Ok(Ok(()))
    }

    /// Changes the description, default targets, presets, resources, feedback and metric of an application to those
    /// that `change` returns for the present application, and returns it. Other differences are ignored. If `change`
    /// refuses, nothing changes: the inner result has the reason. No other caller changes the application in between.
    /// Another metric is [`Error::InUse`] while a model is registered or being registered, because the present metric
    /// measured that model.
    pub async fn change_application<E>(
        &self,
        id: &ApplicationId,
        change: impl FnOnce(Application) -> Result<Application, E> + Send,
    ) -> Result<Result<Application, E>, Error> {
        let mut tx = self.begin().await?;
        let known = get(&mut tx, id).await?;
        let wanted = match change(known.clone()) {
            Ok(wanted) => wanted,
            Err(refused) => return Ok(Err(refused)),
        };
        let changed = Application {
            id: known.id.clone(),
            signature: known.signature.clone(),
            ..wanted
        };
        if changed.metric != known.metric && tx.any(sql::SOUND_MODEL.bind(id.as_str())).await? {
            let why = "it has models, which are measured by its metric";
            return Err(Error::in_use(Entity::Application, id, why));
        }
        if changed != known {
            let targets = document(Entity::Application, id, &changed.default_targets)?;
            let change = sql::CHANGE_APPLICATION
                .bind(id.as_str())
                .bind(changed.description.as_str())
                .bind(targets)
                .bind(resources_document(&changed)?)
                .bind(presets_document(&changed)?)
                .bind(changed.metric.name())
                .bind(feedback_document(&changed)?);
            tx.run(change).await?;
            tx.commit().await?;
        }
        Ok(Ok(changed))
    }

    /// The signature that a model must have: that of its application, if it has other models that have not failed.
    pub async fn standing_signature(&self, model: &ModelId) -> Result<Option<Signature>, Error> {
        let mut reader = self.read().await?;
        let model = crate::model::get(&mut reader, model).await?;
        let application = get(&mut reader, &model.application).await?;
        let others = sql::OTHER_SOUND_MODEL
            .bind(model.application.as_str())
            .bind(model.id.as_str());
        let others = reader.any(others).await?;
        Ok(application.signature.filter(|_| others))
    }

    /// Fixes the signature of a model's application, or checks that it is the fixed one: [`Error::SignatureMismatch`]
    /// otherwise. A signature of which no other model is left (all others have failed or were deleted) is replaced.
    pub async fn fix_signature(&self, model: &ModelId, signature: &Signature) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        let model = crate::model::get(&mut tx, model).await?;
        let application = get(&mut tx, &model.application).await?;
        if application.signature.as_ref() == Some(signature) {
            return Ok(());
        }
        let others = tx
            .any(
                sql::OTHER_SOUND_MODEL
                    .bind(model.application.as_str())
                    .bind(model.id.as_str()),
            )
            .await?;
        if application.signature.is_some() && others {
            return Err(Error::SignatureMismatch {
                application: model.application,
            });
        }
        let text = document(Entity::Application, &application.id, signature)?;
        tx.run(sql::SET_SIGNATURE.bind(application.id.as_str()).bind(text))
            .await?;
        tx.commit().await
    }
}

pub(crate) async fn get(
    connection: &mut Session,
    id: &ApplicationId,
) -> Result<Application, Error> {
    find(connection, id)
        .await?
        .ok_or_else(|| Error::not_found(Entity::Application, id))
}

/// Removes an application without models and unfinished jobs.
pub(crate) async fn remove(connection: &mut Session, id: &ApplicationId) -> Result<(), Error> {
    let models = sql::MODEL_OF_APPLICATION.bind(id.as_str());
    if connection.any(models).await? {
        return Err(Error::in_use(Entity::Application, id, "it has models"));
    }
    let jobs = sql::UNFINISHED_OF_APPLICATION.bind(id.as_str());
    if connection.any(jobs).await? {
        let why = "it has unfinished jobs";
        return Err(Error::in_use(Entity::Application, id, why));
    }
    connection
        .run(sql::DELETE_APPLICATION.bind(id.as_str()))
        .await?;
    Ok(())
}

pub(crate) async fn find(
    connection: &mut Session,
    id: &ApplicationId,
) -> Result<Option<Application>, Error> {
    let row = connection.row(sql::APPLICATION.bind(id.as_str())).await?;
    row.as_ref().map(application).transpose()
}

pub(crate) async fn insert(
    connection: &mut Session,
    application: &Application,
) -> Result<(), Error> {
    let id = &application.id;
    let targets = document(Entity::Application, id, &application.default_targets)?;
    let signature = application
        .signature
        .as_ref()
        .map(|signature| document(Entity::Application, id, signature))
        .transpose()?;
    connection
        .run(
            sql::CREATE_APPLICATION
                .bind(id.as_str())
                .bind(application.metric.name())
                .bind(application.description.as_str())
                .bind(targets)
                .bind(signature)
                .bind(resources_document(application)?)
                .bind(presets_document(application)?)
                .bind(feedback_document(application)?),
        )
        .await?;
    Ok(())
}

/// The value of the column; null if nothing is set.
fn resources_document(of: &Application) -> Result<Option<Json>, Error> {
    let set = Some(&of.resources).filter(|resources| !resources.is_default());
    set.map(|resources| document(Entity::Application, &of.id, resources))
        .transpose()
}

/// The value of the column; null if there are none.
fn presets_document(of: &Application) -> Result<Option<Json>, Error> {
    let some = Some(&of.presets).filter(|presets| !presets.is_empty());
    some.map(|presets| document(Entity::Application, &of.id, presets))
        .transpose()
}

/// The value of the column; null if no feedback is accepted.
fn feedback_document(of: &Application) -> Result<Option<Json>, Error> {
    let taken = of.feedback.as_ref();
    taken
        .map(|settings| document(Entity::Application, &of.id, settings))
        .transpose()
}

fn application(row: &Row) -> Result<Application, Error> {
    let columns = Columns::new(row, Entity::Application, "id")?;
    Ok(Application {
        id: columns.parse("id")?,
        metric: columns.one_of("metric", Metric::parse)?,
        description: columns.text("description")?,
        default_targets: columns.json("default_targets")?,
        signature: columns.optional_json("signature")?,
        resources: columns.optional_json("resources")?.unwrap_or_default(),
        presets: columns.optional_json("presets")?.unwrap_or_default(),
        feedback: columns.optional_json("feedback")?,
    })
}
