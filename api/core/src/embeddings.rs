//! `/v1/embeddings`: vectors of sentences or of rows of token ids, in the form of OpenAI's interface.

use std::{borrow::Cow, time::Instant};

use axum::{
    extract::{Request, State},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sextant_rpc::{Answer, Query};
use sextant_types::{
    ApplicationId, Code, DataType, ErrorKind, ModelId, NamedTensor, Route, Signature, Tensor,
    TensorSpec, VariantId, convert,
};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::{Caller, charge_further},
    codec::{Text, short},
    json,
    problem::{Problem, ProblemBody},
    query::{explained, json_response},
    room::Reservation,
    targets::TargetsBody,
};

/// Most rows of one request.
const MOST_ROWS: usize = 256;

/// Most bytes of memory that a character of `input` takes: an id has two characters, is read into 24 bytes and 8 bytes,
/// and takes 8 bytes in each of three inputs.
const READ_TIMES: usize = 28;

/// Most bytes that a byte of a vector takes when written: an element of FP16 has twelve characters.
const WRITTEN_TIMES: usize = 8;

/// Most rows of one request that are answered at once.
const AT_ONCE: usize = 64;

/// What to embed: sentences, or token ids.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEmbeddings, example = json!({"model": "sentences", "input": [[101, 7592, 102], [101, 102]]}))]
pub struct EmbeddingsBody<'a> {
    /// An application, a model or a variant whose output is one vector for each row.
    #[serde(borrow)]
    #[schema(value_type = String, example = "sentences")]
    model: Text<'a>,
    /// A sentence, or up to 256 sentences, if the model takes text, as a pipeline with a step `tokenize`
    /// does; or the token ids of one row, or of up to 256 rows: `[1, 2]` or `[[1, 2], [3]]`.
    #[serde(borrow)]
    #[schema(value_type = InputBody)]
    input: &'a RawValue,
    /// The format of the vectors: `float`, or `base64` for FP32 values in little-endian order.
    #[serde(default, deserialize_with = "json::or_default")]
    encoding_format: Encoding,
    /// Numbers of a vector. Only as many as the model gives.
    #[serde(default)]
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
    /// The service accepts and ignores it.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    #[expect(dead_code, reason = "clients send it, and it says nothing here")]
    user: Option<Text<'a>>,
    /// What is asked for, as in queries.
    #[serde(default, deserialize_with = "json::or_default")]
    targets: TargetsBody,
    /// The name of one of the application's presets, as in queries.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    preset: Option<Text<'a>>,
}

/// Sentences, or token ids.
#[derive(Debug, ToSchema)]
#[schema(as = EmbeddingsInput)]
#[expect(dead_code, reason = "it describes what is read by hand")]
pub enum InputBody {
    /// One sentence.
    #[schema(rename = "Text")]
    Text(String),
    /// Several.
    Texts(Vec<String>),
    /// Token ids.
    Tokens(Vec<TokensBody>),
}

/// One row to embed.
enum Row {
    Tokens(Vec<i64>),
    Text(String),
}

/// A token id of the only row, or the token ids of one of several rows.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = TokenIds)]
#[serde(untagged)]
pub enum TokensBody {
    /// One of the only row.
    Id(i64),
    /// Those of a row.
    Row(Vec<i64>),
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As numbers.
    #[default]
    Float,
    /// As the bytes of FP32 values, in base64.
    Base64,
}

/// Vectors.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Embeddings)]
pub struct AnswerBody {
    /// `list`.
    object: &'static str,
    /// One for each row, in their order.
    data: Vec<EmbeddingBody>,
    /// The model that answered the first row.
    model: String,
    /// What was read.
    usage: UsageBody,
}

/// The vector of one row.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Embedding)]
pub struct EmbeddingBody {
    /// `embedding`.
    object: &'static str,
    /// Position of the row.
    index: usize,
    /// The vector.
    embedding: VectorBody,
}

/// A vector: numbers, or base64 if the request asks for it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Vector)]
#[serde(untagged)]
pub enum VectorBody {
    /// As numbers.
    Float(Vec<f32>),
    /// FP32 values in little-endian order.
    Base64(String),
}

/// What was read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EmbeddingsUsage)]
pub struct UsageBody {
    /// Token ids of all rows; 0 for texts.
    prompt_tokens: usize,
    /// The same.
    total_tokens: usize,
}

/// Returns vectors for sentences or rows of token ids, in the form of OpenAI's interface. Each row is a
/// separate query, so rows may have different lengths and batches form as usual. If one row fails, the
/// request fails.
///
/// The input `input_ids`, or the model's first input if it has no `input_ids`, takes the ids.
/// `attention_mask` gets ones and `token_type_ids` zeros.
#[utoipa::path(post, operation_id = "embeddings_create", path = "/v1/embeddings", tag = "queries",
    request_body(content = EmbeddingsBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "One vector for each row", body = AnswerBody),
        (status = 404, description = "Nothing of that name exists", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (begun, mut route) = (Instant::now(), None);
    let mut taken = state.room().take();
    let asked = read(&state, &caller, request, (&mut taken, &mut route)).await;
    if let Err(problem) = &asked {
        state.count_query(route.as_ref(), Err((problem.code(), begun.elapsed())));
    }
    let asked = asked?;
    let answers = Box::pin(asked.answers(&state, &caller)).await?;
    let outputs = answers.iter().flat_map(|answer| &answer.outputs);
    let held = outputs.map(|output| output.tensor.held_bytes());
    taken.resize(WRITTEN_TIMES * held.sum::<usize>())?;
    let body = asked.compose(&answers)?;
    // The body has strings and numbers: writing them into a vector cannot fail.
    let out = serde_json::to_vec(&body).unwrap_or_default();
    taken.resize(out.len())?;
    Ok(json_response(taken.keep(out)))
}

/// Reads a request that the caller may send. `named` is set to its target as soon as that is known.
async fn read(
    state: &ApiState,
    caller: &Caller,
    request: Request,
    (taken, named): (&mut Reservation, &mut Option<Route>),
) -> Result<EmbeddingRequest, Problem> {
    let body = state.collect(request.into_body()).await?;
    let asked = EmbeddingRequest::read(state, &body, Instant::now(), taken)?;
    state
        .check_owner(caller, named.insert(asked.route.clone()))
        .await?;
    asked.check()?;
    Ok(asked)
}

/// A request and its target.
struct EmbeddingRequest {
    route: Route,
    signature: Signature,
    rows: Vec<Row>,
    targets: TargetsBody,
    preset: Option<String>,
    encoding: Encoding,
    dimensions: Option<usize>,
    arrived: Instant,
}

fn invalid(field: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, detail).field(field)
}

/// The target with a name, and its inputs: a variant, a model or an application.
fn resolve(state: &ApiState, name: &str) -> Result<(Route, Signature), Problem> {
    // Every name may be that of a model, and may have a version.
    let model = name.parse::<ModelId>()?;
    let variant = VariantId::new(name).ok().map(Route::Variant);
    let application = ApplicationId::new(name).ok().map(Route::Application);
    let named = [variant, Some(Route::Model(model)), application];
    for route in named.into_iter().flatten() {
        match state.dispatcher().signature(&route) {
            Ok(signature) => return Ok((route, signature)),
            Err(error) if error.code.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let detail = format!(
        "there is no application, model or variant `{}`",
        short(name)
    );
    Err(Problem::new(Code::ModelNotFound, detail).field("model"))
}

fn rows(input: &RawValue) -> Result<Vec<Row>, Problem> {
    let rows = texts(input.get()).or_else(|| {
        let tokens = serde_json::from_str(input.get()).ok().and_then(in_rows)?;
        Some(tokens.into_iter().map(Row::Tokens).collect())
    });
    let rows: Vec<Row> = rows.ok_or_else(|| {
        let detail = "`input` must be a text, a list of texts, or whole numbers: `[1, 2]`, or `[[1, 2], [3]]` for \
                      several rows";
        invalid("input", detail)
    })?;
    let is_empty = |row: &Row| matches!(row, Row::Tokens(ids) if ids.is_empty());
    if !(1..=MOST_ROWS).contains(&rows.len()) || rows.iter().any(is_empty) {
        let detail = format!("`input` has 1 to {MOST_ROWS} rows, of token ids at least one each");
        return Err(invalid("input", detail));
    }
    Ok(rows)
}

/// One text or a list of texts; `None` for anything else. An empty list counts as a list of token ids.
fn texts(input: &str) -> Option<Vec<Row>> {
    let texts = match serde_json::from_str::<String>(input) {
        Ok(text) => vec![text],
        Err(_) => serde_json::from_str(input)
            .ok()
            .filter(|texts: &Vec<String>| !texts.is_empty())?,
    };
    Some(texts.into_iter().map(Row::Text).collect())
}

/// The rows: one row of ids, or several rows, but not both.
fn in_rows(input: Vec<TokensBody>) -> Option<Vec<Vec<i64>>> {
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    for part in input {
        match part {
            TokensBody::Id(id) => ids.push(id),
            TokensBody::Row(row) => rows.push(row),
        }
    }
    match (ids.is_empty(), rows.is_empty()) {
        (false, false) => None,
        (false, true) => Some(vec![ids]),
        _ => Some(rows),
    }
}

// === impl EmbeddingRequest ===

impl EmbeddingRequest {
    fn read(
        state: &ApiState,
        body: &[u8],
        arrived: Instant,
        taken: &mut Reservation,
    ) -> Result<Self, Problem> {
        let body: EmbeddingsBody<'_> = json::borrowed(body)?;
        let (route, signature) = resolve(state, &body.model.0)?;
        taken.grow(READ_TIMES * body.input.get().len())?;
        Ok(Self {
            route,
            signature,
            rows: rows(body.input)?,
            targets: body.targets,
            preset: body.preset.map(|name| name.0.into_owned()),
            encoding: body.encoding_format,
            dimensions: body.dimensions,
            arrived,
        })
    }

    /// Refuses a target without a vector for each row, and inputs that cannot be filled.
    fn check(&self) -> Result<(), Problem> {
        let (inputs, outputs) = (&self.signature.inputs, &self.signature.outputs);
        let is_vector = |of: &TensorSpec| of.shape.len() == 2 && convert::is_float(of.data_type);
        let takes_text = matches!(&inputs[..], [only] if only.data_type == DataType::Bytes);
        let is_text = matches!(self.rows.first(), Some(Row::Text(_)));
        if is_text != takes_text {
            let detail = match takes_text {
                true => "it takes text: send a sentence, or a list of sentences",
                false => {
                    "it takes no text: send token ids, `[1, 2]` or `[[1, 2], [3]]`, as the model's tokenizer makes \
                     them, or ask a pipeline that has a step `tokenize`"
                }
            };
            return Err(invalid("input", detail));
        }
        if !(self.signature.batched || takes_text) || !outputs.first().is_some_and(is_vector) {
            let detail = "its first output is not one vector of numbers for each row: such models answer \
                          `POST /v1/queries` only";
            return Err(invalid("model", detail));
        }
        if takes_text {
            return Ok(());
        }
        let ids = self.ids();
        let strange = self.signature.inputs.iter().find(|input| {
            let is_known = ["attention_mask", "token_type_ids"].contains(&&*input.name);
            input.name != ids && !is_known
        });
        match strange {
            None => Ok(()),
            Some(input) => {
                let name = &input.name;
                let detail = format!(
                    "it has an input `{name}`, which token ids say nothing of: ask `POST /v1/queries`"
                );
                Err(invalid("model", detail))
            }
        }
    }

    /// The name of the input that takes the ids.
    fn ids(&self) -> &str {
        let inputs = &self.signature.inputs;
        let named = inputs.iter().find(|input| input.name == "input_ids");
        named
            .or(inputs.first())
            .map_or("", |input| input.name.as_str())
    }

    async fn answers(&self, state: &ApiState, caller: &Caller) -> Result<Vec<Answer>, Problem> {
        let rows = self.rows.iter().enumerate();
        let rows: Vec<_> = rows
            .map(|(index, row)| self.one(state, caller, (index, row)))
            .collect();
        stream::iter(rows).buffered(AT_ONCE).try_collect().await
    }

    async fn one(
        &self,
        state: &ApiState,
        caller: &Caller,
        (index, row): (usize, &Row),
    ) -> Result<Answer, Problem> {
        let answered = async {
            // The first row was counted with the request.
            if index > 0 {
                charge_further(caller).await?;
            }
            let _permit = state.admit()?;
            let _share = state.admit_for(&self.route)?;
            let query = self.query(state, row)?;
            explained::dispatch(state, caller, query).await
        };
        let answered: Result<Answer, Problem> = answered.await;
        let elapsed = self.arrived.elapsed();
        let ended = answered.as_ref().map(|answer| (answer, elapsed));
        let ended = ended.map_err(|problem| (problem.code(), elapsed));
        state.count_query(Some(&self.route), ended);
        answered
    }

    fn query(&self, state: &ApiState, row: &Row) -> Result<Query, Problem> {
        let ids = self.ids();
        let inputs = self.signature.inputs.iter().map(|input| {
            let row = match row {
                Row::Tokens(row) => row.as_slice(),
                Row::Text(text) => {
                    let text = Bytes::copy_from_slice(text.as_bytes());
                    let tensor = Tensor::from_strings(vec![1; input.shape.len()], vec![text])?;
                    return Ok(NamedTensor::new(input.name.clone(), tensor));
                }
            };
            let values = match &*input.name {
                name if name == ids => Cow::Borrowed(row),
                "attention_mask" => Cow::Owned(vec![1; row.len()]),
                _ => Cow::Owned(vec![0; row.len()]),
            };
            let tensor = Tensor::from_elements(vec![1, row.len()], &values)?;
            Ok(NamedTensor::new(input.name.clone(), tensor))
        });
        Ok(Query {
            targets: state.targets_with(&self.route, self.preset.as_deref(), self.targets)?,
            ..Query::new(
                self.route.clone(),
                inputs.collect::<Result<_, Problem>>()?,
                self.arrived,
            )
        })
    }

    fn compose(&self, answers: &[Answer]) -> Result<AnswerBody, Problem> {
        let each = answers.iter().enumerate();
        let data = each.map(|(index, answer)| {
            Ok(EmbeddingBody {
                object: "embedding",
                index,
                embedding: self.vector(answer)?,
            })
        });
        // Only the step that reads texts knows their tokens.
        let tokens = self.rows.iter().map(|row| match row {
            Row::Tokens(ids) => ids.len(),
            Row::Text(_) => 0,
        });
        let tokens = tokens.sum();
        Ok(AnswerBody {
            object: "list",
            data: data.collect::<Result<_, Problem>>()?,
            model: answers
                .first()
                .map_or_else(String::new, |answer| answer.model.to_string()),
            usage: UsageBody {
                prompt_tokens: tokens,
                total_tokens: tokens,
            },
        })
    }

    fn vector(&self, answer: &Answer) -> Result<VectorBody, Problem> {
        // A pipeline may leave its first output out, and have others.
        let first = self.signature.outputs.first().map(|spec| &spec.name);
        let output = answer.outputs.iter().find(|it| Some(&it.name) == first);
        let numbers = output.and_then(|output| convert::numbers(&output.tensor));
        let numbers = numbers
            .ok_or_else(|| invalid("model", "its first output is missing or holds no numbers"))?;
        let vector: Vec<f32> = numbers.map(|number| number.real() as f32).collect();
        if let Some(wanted) = self.dimensions.filter(|wanted| *wanted != vector.len()) {
            let has = vector.len();
            let detail =
                format!("the vectors have `{has}` dimensions, and none can be had with `{wanted}`");
            return Err(invalid("dimensions", detail));
        }
        Ok(match self.encoding {
            Encoding::Float => VectorBody::Float(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                VectorBody::Base64(BASE64_STANDARD.encode(bytes))
            }
        })
    }
}
