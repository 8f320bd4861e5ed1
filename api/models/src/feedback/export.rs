//! `GET /v1/applications/{application}/feedback`: an application's feedback, as a file.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures::stream;
use serde::{Deserialize, Serialize};
use sextant_registry::{Feedback, FeedbackPlace};
use sextant_types::ApplicationId;
use utoipa::ToSchema;

use crate::{
    ApiState,
    extract::{Name, Params},
    problem::{Problem, ProblemBody, Refusal},
};

/// Rows that are read at once.
const PAGE: u32 = 1000;

/// The first line of CSV.
const HEAD: &str = "query,row,kind,value,score,model,version,variant,propensity,answered_ms,given_ms,subject,actor\r\n";

#[cfg(feature = "parquet")]
mod parquet;

/// The format of the file.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Jsonl,
    Csv,
    Parquet,
}

/// What to export.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportParams {
    #[serde(default)]
    format: Format,
}

/// A line of an export: the feedback on one row of one answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FeedbackRow)]
pub struct RowBody<'a> {
    /// The query: 28 hexadecimal digits.
    query: &'a str,
    /// The row of its answer, from 0.
    row: u32,
    /// `label`, `reward` or `preference`.
    kind: &'static str,
    /// The value of the feedback. A class is given by its number, and a preference by the other query.
    #[schema(value_type = Object)]
    value: serde_json::Value,
    /// 1 or 0 for right or wrong, the error of the row, or the reward; `null` if the row could not be scored.
    score: Option<f64>,
    /// The model that answered.
    model: &'a str,
    /// Its version; absent if models have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// The variant that answered.
    variant: &'a str,
    /// The probability with which it was chosen.
    propensity: f64,
    /// When it answered, milliseconds since the Unix epoch.
    answered_ms: u64,
    /// When the feedback was given, milliseconds since the Unix epoch.
    given_ms: u64,
    /// The person whom the feedback is about, by the client's name for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    /// Who gave it: the id of a key, or a name of the service's own.
    actor: &'a str,
}

/// The feedback of an application, in the order in which it was given: a line of JSON for each row, CSV, or Parquet.
#[utoipa::path(get, operation_id = "feedback_export", path = "/v1/applications/{application}/feedback",
    tag = "feedback",
    params(
        ("application" = String, Path, description = "its name"),
        ("format" = Option<String>, Query, description = "`jsonl`, which is the default, `csv` or `parquet`"),
    ),
    responses(
        (status = 200, description = "One line for each row", content(
            (RowBody<'_> = "application/x-ndjson"), (String = "text/csv"),
            (String = "application/vnd.apache.parquet"),
        )),
        (status = 404, description = "There is no such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(name): Name<ApplicationId>,
    Params(params): Params<ExportParams>,
) -> Result<Response, Problem> {
    state.registry().application(&name).await?;
    let (kind, head) = match params.format {
        Format::Jsonl => ("application/x-ndjson", ""),
        Format::Csv => ("text/csv; charset=utf-8", HEAD),
        Format::Parquet => return columns(state, name),
    };
    let first = PageStart::First(head);
    let pages = stream::try_unfold(first, move |next| {
        let (state, name) = (state.clone(), name.clone());
        async move { page(&state, &name, next, params.format).await }
    });
    Ok(answer(kind, Body::from_stream(pages)))
}

fn answer(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An export as Parquet.
#[cfg(feature = "parquet")]
fn columns(state: ApiState, name: ApplicationId) -> Result<Response, Problem> {
    let file = parquet::File::new().map_err(|error| unwritten(&error))?;
    let first = (file, None::<FeedbackPlace>);
    let groups = stream::try_unfold(first, move |(mut file, after)| {
        let (state, name) = (state.clone(), name.clone());
        async move {
            if file.has_ended() {
                return Ok(None);
            }
            let rows = state.registry().feedback(&name, after.as_ref(), PAGE);
            let rows = rows.await.map_err(|error| Refusal(error.into()))?;
            let after = rows.last().map(Feedback::place).or(after);
            let bytes = file
                .append(&rows)
                .map_err(|error| Refusal(unwritten(&error)))?;
            Ok::<_, Refusal>(Some((bytes, (file, after))))
        }
    });
    let kind = "application/vnd.apache.parquet";
    Ok(answer(kind, Body::from_stream(groups)))
}

#[cfg(feature = "parquet")]
fn unwritten(error: &::parquet::errors::ParquetError) -> Problem {
    let detail = format!("the file cannot be written: {error}");
    Problem::new(sextant_types::Code::Internal, detail)
}

/// Refuses: the service was built without Parquet.
#[cfg(not(feature = "parquet"))]
fn columns(_: ApiState, _: ApplicationId) -> Result<Response, Problem> {
    let detail = "this service was built without Parquet: ask for `jsonl` or `csv`";
    Err(Problem::new(sextant_types::Code::InvalidRequest, detail).field("format"))
}

/// Where the next page begins.
enum PageStart {
    First(&'static str),
    Behind(FeedbackPlace),
}

async fn page(
    state: &ApiState,
    name: &ApplicationId,
    next: PageStart,
    format: Format,
) -> Result<Option<(Bytes, PageStart)>, Refusal> {
    let (head, after) = match &next {
        PageStart::First(head) => (*head, None),
        PageStart::Behind(place) => ("", Some(place)),
    };
    let rows = state.registry().feedback(name, after, PAGE).await;
    let rows = rows.map_err(|error| Refusal(error.into()))?;
    let place = match (rows.last(), next) {
        (Some(last), _) => last.place(),
        (None, PageStart::First("")) | (None, PageStart::Behind(_)) => return Ok(None),
        // There are no rows: the page has the head alone.
        (None, PageStart::First(_)) => (
            u64::MAX >> 1,
            String::new(),
            0,
            sextant_feedback::Kind::Label,
        ),
    };
    let mut out = head.as_bytes().to_vec();
    for row in &rows {
        match format {
            Format::Jsonl => line(&mut out, row),
            Format::Csv | Format::Parquet => record(&mut out, row),
        }
    }
    Ok(Some((out.into(), PageStart::Behind(place))))
}

fn line(out: &mut Vec<u8>, row: &Feedback) {
    // The body has strings and numbers: writing them into a vector cannot fail.
    out.append(&mut serde_json::to_vec(&RowBody::new(row)).unwrap_or_default());
    out.push(b'\n');
}

fn record(out: &mut Vec<u8>, row: &Feedback) {
    let body = RowBody::new(row);
    let value = match &body.value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let optional = |number: Option<f64>| number.map(|it| it.to_string()).unwrap_or_default();
    let cells = [
        body.query.to_owned(),
        body.row.to_string(),
        body.kind.to_owned(),
        value,
        optional(body.score),
        body.model.to_owned(),
        body.version.map(|it| it.to_string()).unwrap_or_default(),
        body.variant.to_owned(),
        body.propensity.to_string(),
        body.answered_ms.to_string(),
        body.given_ms.to_string(),
        body.subject.unwrap_or_default().to_owned(),
        body.actor.to_owned(),
    ];
    let cells = cells.map(|cell| quoted(&cell));
    out.extend_from_slice(cells.join(",").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A cell in the form of RFC 4180. A cell that a spreadsheet would take for a formula gets an apostrophe before it.
fn quoted(cell: &str) -> String {
    let is_formula =
        cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let cell = match is_formula {
        true => format!("'{cell}"),
        false => cell.to_owned(),
    };
    match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}

// === impl RowBody ===

impl<'a> RowBody<'a> {
    fn new(row: &'a Feedback) -> Self {
        Self {
            query: &row.query,
            row: row.row,
            kind: row.kind.name(),
            value: serde_json::from_str(&row.value).unwrap_or_default(),
            score: row.score,
            model: row.model.as_str(),
            version: Some(row.version).filter(|version| *version > 0),
            variant: row.variant.as_str(),
            propensity: row.propensity,
            answered_ms: row.answered_ms,
            given_ms: row.given_ms,
            subject: row.subject.as_deref(),
            actor: &row.actor,
        }
    }
}
