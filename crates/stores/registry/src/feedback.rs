//! Feedback of users on answers: rows, their sums by the hour, and the alarms that follow from them.
//!
//! Rows and sums are written in one transaction. So each row counts once, however often it is sent and whatever fails
//! in between. Rows are removed after a while, or if they take too much room; sums are kept as long as rows may be.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sextant_feedback::{Kind, Sums};
use sextant_types::{ApplicationId, ModelId, VariantId};
use uuid::Uuid;

use crate::{
    Entity, Error, Model, Registry,
    database::{Json, Row, Session},
    model,
    rows::{Columns, int},
    sql,
};

mod alarms;
mod keys;
mod shadows;

pub use alarms::FeedbackAlarm;
pub use keys::FeedbackKey;
pub use shadows::ShadowAnswer;

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// Bytes of a row in addition to its texts.
const ROW_BYTES: usize = 120;

/// The feedback on one row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// The query.
    pub query: String,
    /// The row of its answer, from 0.
    pub row: u32,
    /// The kind of feedback.
    pub kind: Kind,
    /// The application of the query.
    pub application: ApplicationId,
    /// The model that answered.
    pub model: ModelId,
    /// Its version; 0 if the model has no versions.
    pub version: u32,
    /// The variant that answered.
    pub variant: VariantId,
    /// When it answered, ms since the Unix epoch.
    pub answered_ms: u64,
    /// When the feedback was given, ms since the Unix epoch.
    pub given_ms: u64,
    /// The feedback, a document as text.
    pub value: String,
    /// Its score; `None` if it could not be scored.
    pub score: Option<f64>,
    /// The probability with which the variant was chosen.
    pub propensity: f64,
    /// The person whom it is about, as the client names them.
    pub subject: Option<String>,
    /// The actor: a key's id, or a name of the service's own.
    pub actor: String,
}

/// The result for one row of feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The row was stored and counted.
    Kept,
    /// The row was already stored.
    Repeated,
    /// Another value is already stored, and stays.
    Differs,
    /// The application does not exist any more.
    Gone,
    /// The model was deleted, and another one was registered under its id since the answer.
    Replaced,
    /// The row is one half of a comparison whose other half is not stored.
    Withdrawn,
}

/// The sums of one hour, of one kind, of one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedbackSums {
    /// The model that answered.
    pub model: ModelId,
    /// Its version; 0 if the model has no versions.
    pub version: u32,
    /// The variant that answered.
    pub variant: VariantId,
    /// The kind of feedback.
    pub kind: Kind,
    /// When the answers were given, hours since the Unix epoch.
    pub hour: u64,
    /// The sums of the scores.
    pub sums: Sums,
}

/// Where the next page of an export begins: after the row with this time, query, row and kind.
pub type FeedbackPlace = (u64, String, u32, Kind);

/// The bounds of an application's stored rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedbackBounds {
    /// Rows given before this time are removed, ms since the Unix epoch.
    pub since_ms: u64,
    /// The latest rows are kept up to this number of bytes.
    pub max_bytes: u64,
}

/// The rows that are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureScope<'a> {
    /// The rows of a query.
    Query(&'a str),
    /// The rows about a person.
    Subject(&'a str),
}

impl Registry {
    /// Stores rows, and counts each that is new and has a score. Returns the result for each row, in order. No two rows
    /// may have the same query, row and kind. A comparison is two consecutive rows: both are stored, or neither.
    pub async fn give_feedback(&self, given: &[Feedback]) -> Result<Vec<Fate>, Error> {
        if given.is_empty() {
            return Ok(Vec::new());
        }
        let body = Uuid::now_v7().to_string();
        let mut ordered: Vec<&Feedback> = given.iter().collect();
        // Concurrent writers of the same rows must take them in the same order.
        ordered.sort_by(|a, b| a.key().cmp(&b.key()));
        let rows: Vec<Value> = ordered.iter().map(|row| row.document(&body)).collect();
        let rows = Json(Value::Array(rows).to_string());
        let mut tx = self.begin_rows().await?;
        let kept = tx.run(sql::GIVE_FEEDBACK.bind(rows)).await?;
        let fates = match kept == given.len() as u64 {
            true => vec![Fate::Kept; given.len()],
            false => {
                let mut fates = fates(&mut tx, given, &body).await?;
                withdraw(&mut tx, given, &mut fates).await?;
                fates
            }
        };
        let counted = given.iter().zip(&fates);
        let counted = counted.filter(|(_, fate)| **fate == Fate::Kept);
        add_sums(&mut tx, counted.map(|(row, _)| row)).await?;
        tx.commit().await?;
        Ok(fates)
    }

    /// Rows of an application in the order in which they were given, after `after`, up to the limit.
    pub async fn feedback(
        &self,
        application: &ApplicationId,
        after: Option<&FeedbackPlace>,
        limit: u32,
    ) -> Result<Vec<Feedback>, Error> {
        let (at_ms, query, row, kind) = match after {
            Some((at_ms, query, row, kind)) => (int(*at_ms), query.as_str(), *row, kind.name()),
            None => (-1, "", 0, ""),
        };
        let query = sql::FEEDBACK
            .bind(application.as_str())
            .bind(at_ms)
            .bind(query)
            .bind(i64::from(row))
            .bind(kind)
            .bind(i64::from(limit));
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(read).collect()
    }

    /// Removes rows of an application, and returns their number. The sums that they were counted in do not change.
    pub async fn erase_feedback(
        &self,
        application: &ApplicationId,
        whose: ErasureScope<'_>,
    ) -> Result<u64, Error> {
        let erase = match whose {
            ErasureScope::Query(query) => sql::ERASE_QUERY.bind(application.as_str()).bind(query),
            ErasureScope::Subject(subject) => {
                sql::ERASE_SUBJECT.bind(application.as_str()).bind(subject)
            }
        };
        let mut tx = self.begin_rows().await?;
        let erased = tx.run(erase).await?;
        tx.commit().await?;
        Ok(erased)
    }

    /// Removes up to `most` rows beyond the bounds, the oldest first. Returns their number; if it is less than `most`,
    /// no such row is left.
    pub async fn prune_feedback(
        &self,
        application: &ApplicationId,
        bounds: &FeedbackBounds,
        most: u32,
    ) -> Result<u64, Error> {
        let id = application.as_str();
        let mut tx = self.begin_rows().await?;
        let hour = int(bounds.since_ms / HOUR_MS);
        tx.run(sql::FORGET_SUMS.bind(id).bind(hour)).await?;
        let old = forget(&mut tx, id, (int(bounds.since_ms) - 1, most.into())).await?;
        let left = i64::from(most) - int(old);
        let excess = bytes(&mut tx, id).await?.saturating_sub(bounds.max_bytes);
        let further = match excess > 0 && left > 0 {
            true => {
                let most = rows_of(&mut tx, id, (excess, left)).await?;
                forget(&mut tx, id, (i64::MAX, most)).await?
            }
            false => 0,
        };
        tx.commit().await?;
        Ok(old + further)
    }

    /// The sums of an application, in the order of model, version, variant, kind and hour.
    pub async fn feedback_sums(
        &self,
        application: &ApplicationId,
    ) -> Result<Vec<FeedbackSums>, Error> {
        let query = sql::FEEDBACK_SUMS.bind(application.as_str());
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(read_sums).collect()
    }
}

/// Removes the sums of a model of this id, and the alarms that followed from them.
pub(crate) async fn forget_model(
    tx: &mut Session,
    (application, model): (&ApplicationId, &ModelId),
) -> Result<(), Error> {
    for forget in [&sql::FORGET_SUMS_OF_MODEL, &sql::FORGET_ALARMS_OF_MODEL] {
        let forget = forget.bind(application.as_str()).bind(model.as_str());
        tx.run(forget).await?;
    }
    Ok(())
}

/// Removes rows that were given up to a time, up to a number.
async fn forget(
    tx: &mut Session,
    application: &str,
    (until_ms, most): (i64, i64),
) -> Result<u64, Error> {
    let forget = sql::FORGET_FEEDBACK.bind(application).bind(until_ms);
    tx.run(forget.bind(most)).await
}

/// The number of the oldest rows that take this number of bytes, at most `most`.
async fn rows_of(
    tx: &mut Session,
    application: &str,
    (bytes, most): (u64, i64),
) -> Result<i64, Error> {
    let query = sql::FEEDBACK_BELOW.bind(application).bind(int(bytes));
    let row = tx.one(query.bind(most)).await?;
    let columns = Columns::new(&row, Entity::Feedback, "application")?;
    let below: u64 = columns.count("counted")?;
    Ok(most.min(int(below) + 1))
}

async fn bytes(tx: &mut Session, application: &str) -> Result<u64, Error> {
    let row = tx.one(sql::FEEDBACK_BYTES.bind(application)).await?;
    Columns::new(&row, Entity::Feedback, "application")?.count("bytes")
}

/// The results for rows, some of which were stored before.
async fn fates(tx: &mut Session, given: &[Feedback], body: &str) -> Result<Vec<Fate>, Error> {
    let mut there = BTreeMap::new();
    let keys = keys(given.iter());
    for row in tx.rows(sql::FEEDBACK_THERE.bind(keys)).await? {
        let columns = Columns::new(&row, Entity::Feedback, "query")?;
        let place: u32 = columns.count("place")?;
        let key = (
            columns.text("query")?,
            place,
            columns.one_of("kind", Kind::parse)?,
        );
        there.insert(key, (columns.text("value")?, columns.text("body")?));
    }
    let found = |row: &Feedback| there.get(&(row.query.clone(), row.row, row.kind));
    let lost = given.iter().filter(|row| found(row).is_none());
    let lost: BTreeSet<&ModelId> = lost.map(|row| &row.model).collect();
    let models = models(tx, lost).await?;
    let is_replaced = |row: &Feedback| {
        let model = models.get(&row.model);
        model.is_some_and(|it| it.application == row.application && it.created_ms > row.answered_ms)
    };
    let fate = |row: &Feedback| match found(row) {
        None if is_replaced(row) => Fate::Replaced,
        None => Fate::Gone,
        Some((_, of)) if of == body => Fate::Kept,
        Some((value, _)) if *value == row.value => Fate::Repeated,
        Some(_) => Fate::Differs,
    };
    Ok(given.iter().map(fate).collect())
}

/// The models of these ids, without those that do not exist.
async fn models<'a>(
    tx: &mut Session,
    ids: BTreeSet<&'a ModelId>,
) -> Result<BTreeMap<&'a ModelId, Model>, Error> {
    let mut models = BTreeMap::new();
    for id in ids {
        if let Some(model) = model::find(tx, id).await? {
            models.insert(id, model);
        }
    }
    Ok(models)
}

/// The keys of rows as a document.
fn keys<'a>(rows: impl Iterator<Item = &'a Feedback>) -> Json {
    let keys =
        rows.map(|row| json!({"query": row.query, "place": row.row, "kind": row.kind.name()}));
    Json(Value::Array(keys.collect()).to_string())
}

/// Removes the halves of comparisons whose other halves are not stored.
async fn withdraw(tx: &mut Session, given: &[Feedback], fates: &mut [Fate]) -> Result<(), Error> {
    let mut halves = Vec::new();
    for (at, pair) in given.windows(2).enumerate() {
        if !pair[0].is_compared_with(&pair[1]) {
            continue;
        }
        for (half, other) in [(at, at + 1), (at + 1, at)] {
            let is_lost = matches!(fates[other], Fate::Differs | Fate::Gone | Fate::Replaced);
            if is_lost && fates[half] == Fate::Kept {
                fates[half] = Fate::Withdrawn;
                halves.push(&given[half]);
            }
        }
    }
    if halves.is_empty() {
        return Ok(());
    }
    let keys = keys(halves.into_iter());
    tx.run(sql::WITHDRAW_FEEDBACK.bind(keys)).await.map(drop)
}

async fn add_sums<'a>(
    tx: &mut Session,
    kept: impl Iterator<Item = &'a Feedback>,
) -> Result<(), Error> {
    let mut all: BTreeMap<_, Sums> = BTreeMap::new();
    for row in kept {
        let Some(score) = row.score else {
            continue;
        };
        let of = (&row.application, &row.model, row.version, &row.variant);
        let key = (of, row.kind, row.answered_ms / HOUR_MS);
        all.entry(key).or_default().add(score);
    }
    if all.is_empty() {
        return Ok(());
    }
    let sums = all.iter().map(|((of, kind, hour), sums)| {
        let (application, model, version, variant) = of;
        json!({
            "application": application, "model": model, "version": version, "variant": variant,
            "kind": kind.name(), "hour": hour, "counted": sums.rows, "total": sums.sum,
            "squares": sums.squares,
        })
    });
    let sums = Json(Value::Array(sums.collect()).to_string());
    tx.run(sql::ADD_SUMS.bind(sums)).await.map(drop)
}

fn read(row: &Row) -> Result<Feedback, Error> {
    let columns = Columns::new(row, Entity::Feedback, "query")?;
    Ok(Feedback {
        query: columns.text("query")?,
        row: columns.count("place")?,
        kind: columns.one_of("kind", Kind::parse)?,
        application: columns.parse("application")?,
        model: columns.parse("model")?,
        version: columns.count("version")?,
        variant: columns.parse("variant")?,
        answered_ms: columns.count("answered_ms")?,
        given_ms: columns.count("given_ms")?,
        value: columns.text("value")?,
        score: columns.optional_real("score")?,
        propensity: columns.real("propensity")?,
        subject: columns.optional_text("subject")?,
        actor: columns.text("actor")?,
    })
}

fn read_sums(row: &Row) -> Result<FeedbackSums, Error> {
    let columns = Columns::new(row, Entity::Feedback, "application")?;
    Ok(FeedbackSums {
        model: columns.parse("model")?,
        version: columns.count("version")?,
        variant: columns.parse("variant")?,
        kind: columns.one_of("kind", Kind::parse)?,
        hour: columns.count("hour")?,
        sums: Sums {
            rows: columns.count("counted")?,
            sum: columns.real("total")?,
            squares: columns.real("squares")?,
        },
    })
}

// === impl Feedback ===

impl Feedback {
    /// The key of a row: no two rows have the same.
    pub fn key(&self) -> (&str, u32, Kind) {
        (&self.query, self.row, self.kind)
    }

    /// Whether the two are the halves of one comparison: the better answer and the worse one.
    fn is_compared_with(&self, worse: &Self) -> bool {
        let names = |value: &str, other: &Self, role: &str| {
            let value: Option<Value> = serde_json::from_str(value).ok();
            value.is_some_and(|value| value[role] == *other.query)
        };
        self.kind == Kind::Preference
            && worse.kind == Kind::Preference
            && self.row == worse.row
            && names(&self.value, worse, "over")
            && names(&worse.value, self, "under")
    }

    /// Its approximate size, bytes.
    fn bytes(&self) -> usize {
        let texts = [&self.query, &self.value, &self.actor];
        let names = [
            self.application.as_str(),
            self.model.as_str(),
            self.variant.as_str(),
        ];
        let texts: usize = texts.map(String::len).iter().sum();
        let names: usize = names.map(str::len).iter().sum();
        ROW_BYTES + texts + names + self.subject.as_ref().map_or(0, String::len)
    }

    fn document(&self, body: &str) -> Value {
        json!({
            "query": self.query, "place": self.row, "kind": self.kind.name(),
            "application": self.application, "model": self.model, "version": self.version,
            "variant": self.variant, "answered_ms": self.answered_ms, "given_ms": self.given_ms,
            "value": self.value, "score": self.score, "propensity": self.propensity,
            "subject": self.subject, "actor": self.actor, "bytes": self.bytes(), "body": body,
        })
    }

    /// The place after it in an export.
    pub fn place(&self) -> FeedbackPlace {
        (self.given_ms, self.query.clone(), self.row, self.kind)
    }
}
