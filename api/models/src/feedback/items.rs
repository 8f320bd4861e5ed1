//! Reading the items of a body, each by itself.

use std::{collections::HashMap, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use sextant_feedback::{Forgery, Kind, Label, Prediction, Token, score};
use sextant_registry::Feedback;
use sextant_types::{ApplicationId, Code, Metric};
use utoipa::ToSchema;

use crate::{ApiState, auth::Caller, body::ReservedBody, body::too_large, json, problem::Problem};

/// Most items of a body.
const MOST_ITEMS: usize = 100_000;

/// Longest value of an item, bytes.
const MOST_VALUE_BYTES: usize = 16 << 10;

/// Longest name of a subject, bytes.
const MOST_SUBJECT_BYTES: usize = 256;

/// Most tokens of a body that are remembered: the rows of one answer have the same token.
const MOST_REMEMBERED: usize = 4096;

/// Feedback on one row of one answer: exactly one of `label`, `reward` and `preferred_to`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FeedbackItem, example = json!({"token": "AQEAAAB..", "label": 7}))]
pub struct ItemBody {
    /// The `feedback_token` exactly as it is in the answer.
    token: String,
    /// The row of the answer, from 0; it may be left out if there is only one.
    #[serde(default)]
    row: Option<u32>,
    /// What would have been right: the number of a class or its name, a number, or what the whole row should have been.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    label: Option<Value>,
    /// How good the answer was: `true`, `false` or a number.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    reward: Option<Value>,
    /// The token of another answer of the same application that was worse than this one.
    #[serde(default)]
    preferred_to: Option<String>,
    /// The person whom the feedback is about, by your own name for them:
    /// `DELETE /v1/applications/{application}/feedback?subject=` erases by it.
    #[serde(default)]
    subject: Option<String>,
}

/// The items of a body, and whether the body is one item rather than a list.
pub(super) fn pieces(body: &ReservedBody, lines: bool) -> Result<(Vec<&[u8]>, bool), Problem> {
    let bytes: &[u8] = body.bytes();
    let (pieces, is_alone): (Vec<&[u8]>, bool) = match lines {
        true => {
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            (lines.filter(|line| !line.is_empty()).collect(), false)
        }
        false if bytes.trim_ascii_start().first() == Some(&b'[') => {
            let list: Vec<&RawValue> = json::borrowed(bytes)?;
            (list.iter().map(|it| it.get().as_bytes()).collect(), false)
        }
        false => (vec![bytes], true),
    };
    match pieces.len() {
        0 => Err(Problem::new(
            Code::InvalidRequest,
            "there is no item: give at least one",
        )),
        count if count > MOST_ITEMS => {
            let detail =
                format!("a body has at most `{MOST_ITEMS}` items, this one `{count}`: split it");
            Err(Problem::new(Code::TooLarge, detail))
        }
        _ => Ok((pieces, is_alone)),
    }
}

/// Reads the items of one caller at one time.
pub(super) struct Reader<'a> {
    state: &'a ApiState,
    caller: &'a Caller,
    now_ms: u64,
    /// Tokens that have been verified.
    known: HashMap<String, Arc<VerifiedToken>>,
}

/// A verified token, and the feedback settings of its application.
struct VerifiedToken {
    token: Token,
    query: String,
    metric: Metric,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(state: &'a ApiState, caller: &'a Caller, now_ms: u64) -> Self {
        Self {
            state,
            caller,
            now_ms,
            known: HashMap::new(),
        }
    }

    /// The rows that an item makes.
    pub(super) async fn read(&mut self, piece: &[u8]) -> Result<Vec<Feedback>, Problem> {
        let item: ItemBody = json::owned(piece)?;
        let known = self.token(&item.token).await?;
        let row = row(item.row, &known.token)?;
        let subject = item.subject.map(subject).transpose()?;
        match (item.label, item.reward, item.preferred_to) {
            (Some(label), None, None) => {
                let label = self.label(label, &known).await?;
                let score = score(known.metric, &known.token.prediction, row, &label);
                let score = score.map_err(|unfit| invalid(unfit.to_string()).field("label"))?;
                let value = written(&label);
                check_size(&value)?;
                Ok(vec![self.row(
                    &known,
                    row,
                    (Kind::Label, value, score),
                    subject,
                )])
            }
            (None, Some(reward), None) => {
                let reward = number(&reward)?;
                let value = written(&Label::Number(reward));
                let given = (Kind::Reward, value, Some(reward));
                Ok(vec![self.row(&known, row, given, subject)])
            }
            (None, None, Some(other)) => self.preference(&known, row, &other, subject).await,
            _ => Err(invalid(
                "give exactly one of `label`, `reward` and `preferred_to`",
            )),
        }
    }

    /// The better answer and the worse one.
    async fn preference(
        &mut self,
        better: &VerifiedToken,
        at: u32,
        other: &str,
        subject: Option<String>,
    ) -> Result<Vec<Feedback>, Problem> {
        let worse = self.token(other).await?;
        let of = |known: &VerifiedToken| known.token.application.clone();
        if of(better) != of(&worse) || better.query == worse.query {
            let detail = "`preferred_to` is the token of another answer of the same application";
            return Err(invalid(detail).field("preferred_to"));
        }
        row(Some(at), &worse.token)?;
        let over = serde_json::json!({"over": worse.query}).to_string();
        let under = serde_json::json!({"under": better.query}).to_string();
        let preferred = (Kind::Preference, over, Some(1.0));
        let passed_over = (Kind::Preference, under, Some(0.0));
        Ok(vec![
            self.row(better, at, preferred, subject.clone()),
            self.row(&worse, at, passed_over, subject),
        ])
    }

    fn row(
        &self,
        known: &VerifiedToken,
        row: u32,
        (kind, value, score): (Kind, String, Option<f64>),
        subject: Option<String>,
    ) -> Feedback {
        let token = &known.token;
        Feedback {
            query: known.query.clone(),
            row,
            kind,
            application: token.application.clone(),
            model: token.model.clone(),
            version: token.version,
            variant: token.variant.clone(),
            answered_ms: token.at_ms,
            given_ms: self.now_ms,
            value,
            score,
            propensity: f64::from(token.propensity),
            subject,
            actor: self.caller.name().to_owned(),
        }
    }

    /// Verifies a token: its application must accept feedback, and feedback from this caller.
    async fn token(&mut self, text: &str) -> Result<Arc<VerifiedToken>, Problem> {
        if let Some(known) = self.known.get(text) {
            return Ok(Arc::clone(known));
        }
        let token = match self.state.tokens().read(text) {
            // Another front end may have made a new key in the meantime.
            Err(Forgery::UnknownKey { .. }) if self.state.tokens().renew(self.state).await? => {
                self.state.tokens().read(text)
            }
            read => read,
        };
        let token = token.map_err(|forged| invalid(forged.to_string()).field("token"))?;
        self.caller.check(&token.application)?;
        let metric = self.metric(&token.application)?;
        if token.is_late(self.now_ms) {
            let detail = "the query was answered more than `24` hours ago";
            return Err(Problem::new(Code::FeedbackTooLate, detail));
        }
        let query = token.query();
        let known = Arc::new(VerifiedToken {
            token,
            query,
            metric,
        });
        if self.known.len() >= MOST_REMEMBERED {
            self.known.clear();
        }
        self.known.insert(text.to_owned(), Arc::clone(&known));
        Ok(known)
    }

    fn metric(&self, application: &ApplicationId) -> Result<Metric, Problem> {
        let Some(metric) = self.state.metric(application) else {
            return Err(super::gone(application));
        };
        match self.state.directory().takes_feedback(application) {
            true => Ok(metric),
            false => Err(invalid(format!(
                "application `{application}` takes no feedback: set its `feedback`"
            ))),
        }
    }

    /// A label in the form that is scored: the name of a class becomes its number.
    async fn label(&self, value: Value, known: &VerifiedToken) -> Result<Label, Problem> {
        let Value::String(text) = &value else {
            return label(&value);
        };
        if !matches!(known.token.prediction, Prediction::Classes { .. }) {
            return label(&value);
        }
        let (classes, model) = (self.state.classes(), &known.token.model);
        let scored = classes.of(model, self.state.registry()).await?;
        let at = scored.and_then(|it| it.classes.iter().position(|class| class == text));
        match at {
            Some(at) => Ok(Label::Number(at as f64)),
            None => {
                let detail = format!("model `{model}` has no class of the name that `label` says");
                Err(invalid(detail).field("label"))
            }
        }
    }
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidFeedback, detail)
}

fn row(given: Option<u32>, token: &Token) -> Result<u32, Problem> {
    match given {
        None if token.rows == 1 => Ok(0),
        None => {
            let detail = format!("the answer has `{}` rows: say which with `row`", token.rows);
            Err(invalid(detail).field("row"))
        }
        Some(row) if row < token.rows => Ok(row),
        Some(row) => {
            let detail = format!(
                "there is no row `{row}`: the answer has `{}`, from 0",
                token.rows
            );
            Err(invalid(detail).field("row"))
        }
    }
}

fn subject(text: String) -> Result<String, Problem> {
    let is_fit =
        (1..=MOST_SUBJECT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    match is_fit {
        true => Ok(text),
        false => {
            let detail = format!(
                "`subject` has 1 to `{MOST_SUBJECT_BYTES}` bytes and no control characters"
            );
            Err(invalid(detail).field("subject"))
        }
    }
}

fn number(value: &Value) -> Result<f64, Problem> {
    let number = match value {
        Value::Bool(good) => Some(f64::from(u8::from(*good))),
        value => value.as_f64(),
    };
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| invalid("a reward is `true`, `false` or a finite number").field("reward"))
}

fn label(value: &Value) -> Result<Label, Problem> {
    Label::of_json(value).ok_or_else(|| {
        let detail = "a label is a number, a text, or a list of either, without U+0000";
        invalid(detail).field("label")
    })
}

/// A value in the form that is kept: equal values have equal text.
fn written(label: &Label) -> String {
    let number = |number: &f64| match number.fract() == 0.0 && number.abs() < 9e15 {
        true => Value::from(*number as i64),
        false => Value::from(*number),
    };
    let value = match label {
        Label::Number(one) => number(one),
        Label::Numbers(all) => all.iter().map(number).collect(),
        Label::Text(text) => Value::from(text.as_str()),
        Label::Texts(texts) => Value::from(texts.clone()),
    };
    value.to_string()
}

fn check_size(value: &str) -> Result<(), Problem> {
    match value.len() > MOST_VALUE_BYTES {
        true => Err(too_large("the label", MOST_VALUE_BYTES as u64).field("label")),
        false => Ok(()),
    }
}
