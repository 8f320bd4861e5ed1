//! Versions: the models of one name in an application, and which of them answers.
//!
//! Every change of that is one transaction that reads all versions of the name. So there is one current version before
//! and after it, also with concurrent changes.

use serde_json::Value;
use sextant_types::{ApplicationId, Digest, ModelId, Release, Releases, Stage, id::MAX_NAME_BYTES};

use crate::{
    Audit, Entity, Error, Model, ModelStatus, NewModel, Registry, audit,
    database::Session,
    model,
    rows::{document, int},
    sql,
};

/// An action on a version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Act {
    /// It changes to this stage. [`Stage::Current`] replaces the version that is current.
    To(Stage),
    /// The version that it replaced becomes current again.
    RollBack,
}

/// A change of a version.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionChange {
    /// The model.
    pub model: ModelId,
    /// The action.
    pub act: Act,
    /// The rules by which a version that is tried is promoted or rolled back automatically.
    pub rules: Option<Value>,
    /// The number of the version that the caller believes to be current; `None`: any.
    pub seen: Option<u32>,
    /// When the version changed to its stage, according to the caller, milliseconds since the Unix epoch; `None`: any
    /// time.
    pub since_ms: Option<u64>,
}

/// The place of a model to be created.
pub(crate) struct Free {
    pub(crate) version: u32,
    /// The failed model that it replaces.
    pub(crate) failed: Option<ModelId>,
}

/// The place of a new model among the versions of its name.
pub(crate) enum Place {
    /// It exists.
    Known(Box<Model>),
    /// It is new.
    Free(Free),
}

/// Longest id that is made from a name, unless the name is longer.
const USUAL_ID_BYTES: usize = 64;

/// Largest number of ids that are tried.
const MOST_IDS: u32 = 10_000;

impl Registry {
    /// The model that a reference names.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it names none, [`Error::Ambiguous`] if several applications have the name.
    pub async fn resolve(&self, reference: &ModelId) -> Result<ModelId, Error> {
        let mut reader = self.read().await?;
        let models = meant(&mut reader, reference).await?;
        let releases = releases_of(&models);
        match releases.model(reference) {
            Some(id) => Ok(id.clone()),
            None => Err(no_meaning(reference, &releases)),
        }
    }

    /// All versions of the name in a reference, by number.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve).
    pub async fn versions(&self, reference: &ModelId) -> Result<Vec<Model>, Error> {
        let id = self.resolve(reference).await?;
        let mut reader = self.read().await?;
        let model = model::get(&mut reader, &id).await?;
        of(&mut reader, (&model.application, model.name())).await
    }

    /// The models that are tried and have rules of their own.
    pub async fn tried(&self) -> Result<Vec<Model>, Error> {
        let mut reader = self.read().await?;
        read(&mut reader, (&sql::TRIED).into()).await
    }

    /// The release that a model would have if it became ready now.
    pub async fn release_when_ready(&self, id: &ModelId) -> Result<Release, Error> {
        let mut reader = self.read().await?;
        let model = model::get(&mut reader, id).await?;
        if model.status == ModelStatus::Ready {
            return Ok(model.release);
        }
        let line = of(&mut reader, (&model.application, model.name())).await?;
        let stage = match current(&line) {
            Some(_) => Stage::Candidate,
            None => Stage::Current,
        };
        Ok(Release {
            stage,
            ..model.release
        })
    }

    /// Changes a version's role in answering, in one transaction, and returns all versions of its name. A change to the
    /// present stage is no error.
    ///
    /// # Errors
    /// [`Error::Version`] if it is not ready, if it is current and no other version is to be, if it has nothing to roll
    /// back to, or if the current version or its stage is not the one that the caller has seen. [`Error::NotFound`] if
    /// it does not exist.
    pub async fn change_version(
        &self,
        change: &VersionChange,
        now_ms: u64,
    ) -> Result<Vec<Model>, Error> {
        let mut tx = self.begin().await?;
        let line = make(&mut tx, change, now_ms).await?;
        tx.commit().await?;
        Ok(line)
    }

    /// The same with an entry of the audit record, which is made from the result: both are written, or neither. If
    /// `check` refuses the versions as they are before, nothing changes: the inner result has the reason.
    ///
    /// # Errors
    /// Those of [`change_version`](Self::change_version), and if the entry cannot be written.
    pub async fn change_version_on_record<E>(
        &self,
        change: &VersionChange,
        now_ms: u64,
        (check, entry): (
            impl FnOnce(&[Model]) -> Result<(), E>,
            impl FnOnce(&[Model]) -> Audit,
        ),
    ) -> Result<Result<Vec<Model>, E>, Error> {
        let mut tx = self.begin().await?;
        let model = model::get(&mut tx, &change.model).await?;
        let before = of(&mut tx, (&model.application, model.name())).await?;
        if let Err(refused) = check(&before) {
            return Ok(Err(refused));
        }
        let line = make(&mut tx, change, now_ms).await?;
        let entry = entry(&line);
        audit::record(&mut tx, &entry).await?;
        tx.commit().await?;
        Ok(Ok(line))
    }
}

impl Model {
    /// The name that its versions share.
    pub fn name(&self) -> &ModelId {
        self.release.name.as_ref().unwrap_or(&self.id)
    }

    /// Its release. For a model that is not ready, only that it may come.
    pub fn released(&self) -> Release {
        let stage = match self.status {
            ModelStatus::Ready => self.release.stage,
            ModelStatus::Registering | ModelStatus::Failed => Stage::Candidate,
        };
        Release {
            stage,
            ..self.release.clone()
        }
    }

    fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Version {
            line: self.line(),
            version: self.release.version,
            reason: reason.into(),
        }
    }

    fn line(&self) -> String {
        format!("{}:{}", self.application, self.name())
    }

    fn is_current(&self) -> bool {
        self.status == ModelStatus::Ready && self.release.stage == Stage::Current
    }
}

/// The meaning of references to models.
pub fn releases_of(models: &[Model]) -> Releases {
    let released: Vec<(&Model, Release)> = models.iter().map(|it| (it, it.released())).collect();
    let all = released.iter();
    Releases::of(all.map(|(it, release)| (&it.application, &it.id, release)))
}

/// The models that may decide what a reference names: those of its name.
async fn meant(reader: &mut Session, reference: &ModelId) -> Result<Vec<Model>, Error> {
    let text = reference.as_str();
    let bare = text.split_once(':').map_or(text, |(_, rest)| rest);
    let bare = bare.split_once('@').map_or(bare, |(name, _)| name);
    let mut found = read(reader, sql::MEANT.bind(bare)).await?;
    // If it is named by its id, the other meanings of the name do not count.
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}

fn no_meaning(reference: &ModelId, releases: &Releases) -> Error {
    let applications = releases.applications_with(reference);
    let applications: Vec<ApplicationId> = applications.cloned().collect();
    match applications.len() {
        0 | 1 => Error::not_found(Entity::Model, reference),
        _ => Error::Ambiguous {
            name: reference.to_string(),
            applications,
        },
    }
}

async fn read(reader: &mut Session, query: crate::database::Query) -> Result<Vec<Model>, Error> {
    let rows = reader.rows(query).await?;
    rows.iter().map(model::model).collect()
}

/// All versions of a name in an application, by number.
pub(crate) async fn of(
    reader: &mut Session,
    (application, name): (&ApplicationId, &ModelId),
) -> Result<Vec<Model>, Error> {
    let query = sql::VERSIONS.bind(application.as_str()).bind(name.as_str());
    read(reader, query).await
}

fn current(line: &[Model]) -> Option<&Model> {
    line.iter().find(|it| it.is_current())
}

/// The place of a model that is to be registered.
pub(crate) fn place(line: &[Model], new: &NewModel) -> Result<Place, Error> {
    let is_sound = |it: &&Model| it.status != ModelStatus::Failed;
    let asked = match new.version {
        Some(number) => line.iter().find(|it| it.release.version == number),
        None => {
            let mut sound = line.iter().filter(is_sound);
            let same = sound.find(|it| differences(it, new).is_empty());
            same.or_else(|| line.last().filter(|last| !is_sound(last)))
        }
    };
    let Some(known) = asked else {
        let next = line.last().map_or(1, |last| last.release.version + 1);
        let version = new.version.unwrap_or(next);
        return Ok(Place::Free(Free {
            version,
            failed: None,
        }));
    };
    if !is_sound(&known) {
        return Ok(Place::Free(Free {
            version: known.release.version,
            failed: Some(known.id.clone()),
        }));
    }
    let differs = differences(known, new);
    match differs.is_empty() {
        true => Ok(Place::Known(Box::new(known.clone()))),
        false => Err(Error::VersionExists {
            line: known.line(),
            version: known.release.version,
            differs: differs.join(", "),
        }),
    }
}

/// The differences between a model and one that is to be registered.
fn differences(known: &Model, new: &NewModel) -> Vec<&'static str> {
    let parts = [
        ("file", known.digest == new.digest),
        ("validation set", known.validation == new.validation),
        ("padding", known.padding == new.padding),
        ("choice of outputs", known.outputs == new.outputs),
        ("constant", known.constants == new.constants),
        ("list of classes", known.classes == new.classes),
        ("name of a tensor", known.names == new.names),
        ("file beside it", known.data == new.data),
    ];
    let differ = parts.into_iter().filter(|(_, same)| !same);
    differ.map(|(what, _)| what).collect()
}

/// An id that nothing has. For the first version of a name that nothing else has, it is the name.
pub(crate) async fn new_id(
    tx: &mut Session,
    new: &NewModel,
    version: u32,
) -> Result<ModelId, Error> {
    let name = new.name.as_str();
    let taken = sql::NAME_TAKEN.bind(name).bind(new.application.as_str());
    let is_taken = tx.any(taken).await?;
    if version == 1 && !is_taken {
        return Ok(new.name.clone());
    }
    let mut end = match is_taken && !is_own(tx, new).await? {
        true => format!(".{}", new.application),
        false => String::new(),
    };
    if version > 1 {
        end = format!("{end}.v{version}");
    }
    for attempt in 1..MOST_IDS {
        let end = match attempt {
            1 => end.clone(),
            again => format!("{end}.{again}"),
        };
        let id = made(name, &end, new);
        if let Some(id) = id
            && !tx.any(sql::ID_TAKEN.bind(id.as_str())).await?
        {
            return Ok(id);
        }
    }
    let reason = "no id is left for it: choose another name";
    Err(Error::in_use(Entity::Model, &new.name, reason))
}

/// Whether the model whose id is the name belongs to the same application.
async fn is_own(tx: &mut Session, new: &NewModel) -> Result<bool, Error> {
    let row = tx.row(sql::MODEL.bind(new.name.as_str())).await?;
    let owner = row.as_ref().map(model::model).transpose()?;
    Ok(owner.is_some_and(|owner| owner.application == new.application))
}

/// A name with a suffix. A long suffix is replaced by its digest, and a long name is cut.
fn made(name: &str, end: &str, new: &NewModel) -> Option<ModelId> {
    let most = name.len().clamp(USUAL_ID_BYTES, MAX_NAME_BYTES);
    let digest = |digest: Digest| digest.to_string().get(..12).map(str::to_owned);
    let end = match end.len() < most / 2 {
        true => end.to_owned(),
        false => format!(".{}{}", digest(new.digest)?, end.get(end.len() - 4..)?),
    };
    let kept = name.get(..name.len().min(most - end.len()))?;
    ModelId::new(format!("{kept}{end}")).ok()
}

/// Notes that a model has become ready. It becomes current if it is the first of its name, or if it was registered to
/// be.
pub(crate) async fn begin(tx: &mut Session, id: &ModelId, now_ms: u64) -> Result<(), Error> {
    let model = model::get(tx, id).await?;
    let line = of(tx, (&model.application, model.name())).await?;
    let others: Vec<Model> = line.into_iter().filter(|it| it.id != *id).collect();
    match current(&others) {
        None => set(tx, &model, (Stage::Current, None), None).await,
        Some(old) if model.release.stage == Stage::Current => {
            switch(tx, (&model, Some(old.release.version)), old, now_ms).await
        }
        Some(_) => set(tx, &model, (Stage::Candidate, Some(now_ms)), None).await,
    }
}

/// Refuses to remove the current version while other versions are ready: the name would not name any.
pub(crate) async fn refuse_current(tx: &mut Session, model: &Model) -> Result<(), Error> {
    let line = of(tx, (&model.application, model.name())).await?;
    let is_ready = |it: &&Model| it.id != model.id && it.status == ModelStatus::Ready;
    match model.is_current() && line.iter().any(|it| is_ready(&it)) {
        true => {
            let reason = "it is the current version of its name: promote another one first, or remove the others";
            Err(Error::in_use(Entity::Model, &model.id, reason))
        }
        false => Ok(()),
    }
}

fn check_seen(model: &Model, line: &[Model], change: &VersionChange) -> Result<(), Error> {
    let now = current(line).map(|it| it.release.version);
    match (change.seen, now) {
        (Some(seen), now) if now != Some(seen) => {
            let now = now.map_or("none".to_owned(), |now| format!("version `{now}`"));
            Err(model.refuse(format!(
                "{now} is current by now and not version `{seen}`: somebody else has changed it; read the versions again"
            )))
        }
        _ => match change.since_ms {
            Some(since_ms) if since_ms != model.release.since_ms => Err(model.refuse(format!(
                "it is `{}` since another time than was seen: somebody else has changed it; read the versions again",
                model.release.stage.as_str()
            ))),
            _ => Ok(()),
        },
    }
}

/// Makes a change, and returns all versions of the name.
async fn make(tx: &mut Session, change: &VersionChange, now_ms: u64) -> Result<Vec<Model>, Error> {
    let model = model::get(tx, &change.model).await?;
    let line = of(tx, (&model.application, model.name())).await?;
    check_seen(&model, &line, change)?;
    match change.act {
        Act::RollBack => roll_back(tx, &model, &line, now_ms).await?,
        Act::To(stage) => {
            let to = (stage, change.rules.as_ref());
            bring(tx, (&model, to), &line, now_ms).await?;
        }
    }
    of(tx, (&model.application, model.name())).await
}

async fn roll_back(
    tx: &mut Session,
    model: &Model,
    line: &[Model],
    now_ms: u64,
) -> Result<(), Error> {
    if !model.is_current() {
        return Err(model.refuse("it is not current, so there is nothing to roll back"));
    }
    let before = model.replaced.and_then(|number| {
        let mut line = line.iter();
        line.find(|it| it.release.version == number && it.status == ModelStatus::Ready)
    });
    match before {
        Some(before) => switch(tx, (before, before.replaced), model, now_ms).await,
        None => Err(model.refuse(
            "it took the place of no version that is still there: promote the one that is to be current",
        )),
    }
}

async fn bring(
    tx: &mut Session,
    (model, (stage, rules)): (&Model, (Stage, Option<&Value>)),
    line: &[Model],
    now_ms: u64,
) -> Result<(), Error> {
    if model.status != ModelStatus::Ready {
        return Err(model.refuse("its registration is not done: wait for its job"));
    }
    if model.release.stage == stage && model.rules.as_ref() == rules {
        return Ok(());
    }
    let now_current = current(line);
    if stage == Stage::Current {
        return match now_current {
            Some(old) => switch(tx, (model, Some(old.release.version)), old, now_ms).await,
            None => set(tx, model, (stage, Some(now_ms)), None).await,
        };
    }
    if model.is_current() {
        return Err(model.refuse("it is current: promote another version, or roll back"));
    }
    refuse_second(tx, (model, stage), line).await?;
    let rules = rules.filter(|_| stage.is_tried());
    set_all(tx, model, ((stage, Some(now_ms)), None, rules)).await
}

/// In an application one canary is tried at a time, and of a name one shadow. So each query has one answer and one
/// comparison.
async fn refuse_second(
    tx: &mut Session,
    (model, stage): (&Model, Stage),
    line: &[Model],
) -> Result<(), Error> {
    let other = match stage {
        Stage::Canary { .. } => {
            let query = sql::CANARIES.bind(model.application.as_str());
            read(tx, query).await?
        }
        Stage::Shadow { .. } => line.to_vec(),
        _ => return Ok(()),
    };
    let is_such = |it: &Model| it.id != model.id && it.release.stage.as_str() == stage.as_str();
    match other.iter().find(|it| is_such(it)) {
        Some(it) => Err(model.refuse(format!(
            "version `{}` of `{}` is a {} already: end that first",
            it.release.version,
            it.line(),
            stage.as_str()
        ))),
        None => Ok(()),
    }
}

/// Makes a version current in place of another one.
async fn switch(
    tx: &mut Session,
    (new, replaced): (&Model, Option<u32>),
    old: &Model,
    now_ms: u64,
) -> Result<(), Error> {
    // Both get the same time, which is later than any before.
    let before = old.release.since_ms.max(new.release.since_ms);
    let at = Some(now_ms.max(before + 1));
    set(tx, old, (Stage::Retired, at), old.replaced).await?;
    set(tx, new, (Stage::Current, at), replaced).await
}

async fn set(
    tx: &mut Session,
    model: &Model,
    place: (Stage, Option<u64>),
    replaced: Option<u32>,
) -> Result<(), Error> {
    set_all(tx, model, (place, replaced, None)).await
}

/// A stage and since when, the replaced version, and the rules.
type Stand<'a> = ((Stage, Option<u64>), Option<u32>, Option<&'a Value>);

async fn set_all(
    tx: &mut Session,
    model: &Model,
    ((stage, since_ms), replaced, rules): Stand<'_>,
) -> Result<(), Error> {
    let rules = rules.map(|rules| document(Entity::Model, &model.id, rules));
    let query = sql::SET_STAGE
        .bind(model.id.as_str())
        .bind(stage.as_str())
        .bind(stage.percent())
        .bind(since_ms.map(int))
        .bind(replaced.map(i64::from))
        .bind(rules.transpose()?);
    tx.run(query).await.map(drop)
}
