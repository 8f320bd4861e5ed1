//! `/v1/feedback`: what users say of answers.
//!
//! If an application accepts feedback, its answers carry a token (`tokens`). A client that gives feedback sends the
//! token back. Each item of a body is checked by itself (`items`), and the accepted items are written in one
//! transaction, together with the items of other requests that wait at the same time (`intake`).

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, header},
};
use serde::Serialize;
use sextant_registry::{Fate, Feedback};
use sextant_types::{ApplicationId, Code, time::unix_ms};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Caller,
    problem::{Problem, ProblemBody},
};

pub mod erase;
pub mod export;
mod items;
pub mod online;
pub mod settings;
pub mod watch;

pub use items::ItemBody;

use items::{Reader, pieces};

/// Most bytes of memory that a byte of an item takes: as its row, as the row's document, and as the row's key.
const ITEM_TIMES: usize = 8;

/// Most refusals that a response lists.
const MOST_REFUSALS: usize = 1000;

/// The results of the items of a body.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = FeedbackTaken)]
pub struct TakenBody {
    /// Items that are kept now, including those that were kept before.
    accepted: usize,
    /// Those of them that were kept before; they count once.
    repeated: usize,
    /// Those of them that are labels and could not be scored, because the token does not contain what this
    /// metric needs.
    unscored: usize,
    /// Items that were refused.
    refused: usize,
    /// Why, in the order of the items, at most 1,000.
    refusals: Vec<RefusalBody>,
}

/// Why an item was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FeedbackRefusal)]
pub struct RefusalBody {
    /// Which item, from 0.
    index: usize,
    /// Stable code; its page is `/docs/errors/{code}`.
    code: &'static str,
    /// What happened and what to do.
    detail: String,
}

/// Gives feedback: one item, a list of items, or a line for each (`application/x-ndjson`). The service
/// checks items one by one: if it refuses some, it takes the others all the same, and the status is 200.
/// If the body is a single item that is refused, the status is that of its problem. Sending the same item
/// again is no error; it counts once.
#[utoipa::path(post, operation_id = "feedback_give", path = "/v1/feedback", tag = "feedback",
    request_body(content = Vec<ItemBody>, content_type = "application/json",
        description = "Up to 100,000 items. The body may also be one item by itself, or `application/x-ndjson` with \
            an item in each line"),
    responses(
        (status = 200, description = "Their results", body = TakenBody),
        (status = 409, description = "The only item comes too late, or there is another value \
            already", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn give(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Json<TakenBody>, Problem> {
    let (parts, body) = request.into_parts();
    let mut body = state.collect(body).await?;
    let bytes = body.bytes().len();
    body.taken().grow(ITEM_TIMES * bytes)?;
    let (pieces, is_alone) = pieces(&body, is_lines(&parts.headers))?;
    let mut reader = Reader::new(&state, &caller, unix_ms());
    let mut given = Submission::default();
    for (index, piece) in pieces.iter().enumerate() {
        match reader.read(piece).await {
            Ok(rows) => given.add(index, rows),
            Err(problem) => given.refuse(index, problem),
        }
    }
    drop(pieces);
    let rows = given.rows.iter().map(|(_, row)| row.clone()).collect();
    let fates = state.intake().keep(&state, rows).await?;
    given.settle(&fates);
    state.metrics().feedback(&given.outcomes());
    match is_alone {
        true => given.only(),
        false => Ok(Json(given.body())),
    }
}

/// Whether a body has one item in each line.
fn is_lines(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    [
        "application/x-ndjson",
        "application/jsonl",
        "application/jsonlines",
    ]
    .contains(&kind)
}

/// The items of a body while they are processed.
#[derive(Default)]
struct Submission {
    /// Each row, with the index of its item. An item about two answers has two rows.
    rows: Vec<(usize, Feedback)>,
    /// Items whose rows an earlier item of the body has as well, with the place of that row in `rows`.
    again: Vec<(usize, usize)>,
    /// The place in `rows` by query, row and kind.
    places: std::collections::HashMap<(String, u32, sextant_feedback::Kind), usize>,
    refused: Vec<(usize, Problem)>,
    kept: Vec<usize>,
    repeated: Vec<usize>,
}

// === impl Submission ===

impl Submission {
    /// Adds the rows of an item, unless an earlier item is about the same row, query and kind.
    fn add(&mut self, index: usize, rows: Vec<Feedback>) {
        let earlier = rows.iter().find_map(|row| {
            let key = (row.query.clone(), row.row, row.kind);
            self.places.get(&key).map(|at| (*at, row))
        });
        if let Some((at, row)) = earlier {
            match self.rows[at].1.value == row.value {
                true => self.again.push((index, at)),
                false => self.refuse(index, differs(row)),
            }
            return;
        }
        for row in rows {
            let key = (row.query.clone(), row.row, row.kind);
            self.places.insert(key, self.rows.len());
            self.rows.push((index, row));
        }
    }

    fn refuse(&mut self, index: usize, problem: Problem) {
        self.refused.push((index, problem));
    }

    /// Sorts the items by the fate of their rows.
    fn settle(&mut self, fates: &[Fate]) {
        for (at, fate) in fates.iter().enumerate() {
            let (index, row) = &self.rows[at];
            let index = *index;
            let is_further = at > 0 && self.rows[at - 1].0 == index;
            match fate {
                Fate::Differs | Fate::Gone | Fate::Replaced => {
                    let problem = refusal(*fate, row);
                    self.kept.retain(|kept| *kept != index);
                    self.repeated.retain(|repeated| *repeated != index);
                    self.refused.retain(|(refused, _)| *refused != index);
                    self.refused.push((index, problem));
                }
                Fate::Withdrawn => {}
                _ if is_further => {}
                Fate::Kept => self.kept.push(index),
                Fate::Repeated => self.repeated.push(index),
            }
        }
        for (index, at) in std::mem::take(&mut self.again) {
            match fates[at] {
                Fate::Kept | Fate::Repeated => self.repeated.push(index),
                fate => {
                    let problem = refusal(fate, &self.rows[at].1);
                    self.refused.push((index, problem));
                }
            }
        }
        self.refused.sort_by_key(|(index, _)| *index);
    }

    /// The applications of the rows that were kept, the number of repeated items, and that of refused items.
    fn outcomes(&self) -> (Vec<&ApplicationId>, usize, usize) {
        let kept = self.rows.iter();
        let kept = kept.filter(|(index, _)| self.kept.binary_search(index).is_ok());
        let kept = kept.map(|(_, row)| &row.application).collect();
        (kept, self.repeated.len(), self.refused.len())
    }

    fn unscored(&self) -> usize {
        let is_refused = |index: &usize| {
            let found = self
                .refused
                .binary_search_by_key(index, |(index, _)| *index);
            found.is_ok()
        };
        let rows = self
            .rows
            .iter()
            .filter(|(index, row)| row.score.is_none() && !is_refused(index));
        rows.count()
    }

    fn body(self) -> TakenBody {
        let unscored = self.unscored();
        let refusals = self.refused.iter().take(MOST_REFUSALS);
        TakenBody {
            accepted: self.kept.len() + self.repeated.len(),
            repeated: self.repeated.len(),
            unscored,
            refused: self.refused.len(),
            refusals: refusals
                .map(|(index, problem)| RefusalBody {
                    index: *index,
                    code: problem.code().as_str(),
                    detail: problem.told(),
                })
                .collect(),
        }
    }

    /// The response to a body that is one item.
    fn only(mut self) -> Result<Json<TakenBody>, Problem> {
        match self.refused.pop() {
            Some((_, problem)) => Err(problem),
            None => Ok(Json(self.body())),
        }
    }
}

/// The reason why a row is not kept.
fn refusal(fate: Fate, row: &Feedback) -> Problem {
    match fate {
        Fate::Gone => gone(&row.application),
        Fate::Replaced => replaced(row),
        _ => differs(row),
    }
}

fn differs(row: &Feedback) -> Problem {
    let detail = format!(
        "row `{}` of query `{}` has another {} already, which stays: erase it to give another one",
        row.row,
        row.query,
        row.kind.name()
    );
    Problem::new(Code::FeedbackExists, detail)
}

fn replaced(row: &Feedback) -> Problem {
    let detail = format!(
        "model `{}` was deleted after it answered, and what is registered under its name now is another: give feedback \
         on answers of that one",
        row.model
    );
    Problem::new(Code::FeedbackTooLate, detail)
}

fn gone(application: &ApplicationId) -> Problem {
    let detail = format!("application `{application}` does not exist any more");
    Problem::new(Code::ApplicationNotFound, detail)
}
