//! Bodies of the protocol: JSON, and JSON with binary tensors behind it.

use axum::{http::HeaderMap, response::Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use sextant_registry::ScoredOutput;
use sextant_rpc::Answer;
use sextant_types::{Code, NamedTensor, Tensor, convert};
use utoipa::ToSchema;

use crate::{
    classification::{Likely, likely},
    codec::{TensorBody, TensorParameters, Text, binary, sections, short, write},
    extract::digits,
    json,
    problem::Problem,
    query::json_response,
    targets::TargetsBody,
};

/// An inference request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = InferRequest)]
pub struct InferBody<'a> {
    /// Echoed in the answer.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub id: Option<Text<'a>>,
    /// Targets and the protocol's own parameters.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub parameters: Parameters<'a>,
    /// One tensor for each input.
    #[serde(borrow)]
    #[schema(value_type = Vec<TensorBody<'_>>)]
    pub inputs: Vec<TensorBody<'a>>,
    /// Which outputs are wanted; all when left out.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    pub outputs: Vec<Wanted<'a>>,
}

/// Parameters of a request; others are ignored.
#[derive(Debug, Default, Deserialize)]
pub struct Parameters<'a> {
    slo_latency_ms: Option<f64>,
    slo_min_accuracy: Option<f64>,
    slo_max_error: Option<f64>,
    slo_max_cost_per_1k_usd: Option<f64>,
    #[serde(borrow, default)]
    slo_policy: Option<Text<'a>>,
    /// Microseconds; 0 is none. Text is taken too, as clients send it.
    #[serde(borrow, default)]
    timeout: Option<&'a RawValue>,
    #[serde(default)]
    binary_data_output: bool,
    #[serde(default)]
    pub explain: bool,
}

/// One wanted output.
#[derive(Debug, Deserialize)]
pub struct Wanted<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default)]
    parameters: TensorParameters,
}

/// Which outputs are wanted and how.
pub struct Selection {
    wanted: Vec<Chosen>,
    binary: bool,
}

/// An output that is wanted.
struct Chosen {
    name: String,
    binary: Option<bool>,
    /// So many of its greatest elements in place of all; 0 for all.
    classes: usize,
}

/// What the columns of outputs stand for.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Whether the first dimension counts rows.
    pub batched: bool,
    /// The output whose columns have names.
    pub scored: Option<&'a ScoredOutput>,
}

/// How an output is answered.
#[derive(Clone, Copy)]
struct Form {
    binary: bool,
    classes: usize,
}

/// The answer: all in JSON, or with the wanted outputs in binary behind it.
pub fn answer(
    (name, id): (&str, Option<&str>),
    answer: &Answer,
    selection: &Selection,
    columns: Columns<'_>,
) -> Result<Response, Problem> {
    let mut out = head(name, id, answer);
    let mut tail = Vec::new();
    out.extend_from_slice(b",\"outputs\":[");
    let mut first = true;
    for output in &answer.outputs {
        let Some(form) = selection.choose(&output.name) else {
            continue;
        };
        let classes;
        let output = match form.classes {
            0 => output,
            k => {
                classes = classified(output, k, columns)?;
                &classes
            }
        };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        if form.binary {
            write::binary_tensor(&mut out, output, binary::size(&output.tensor));
            binary::append(&mut tail, &output.tensor);
        } else {
            write::tensor(&mut out, output);
        }
    }
    out.extend_from_slice(b"]}");
    if !selection.any_binary() {
        return Ok(json_response(out));
    }
    Ok(sections::response(out, tail))
}

/// The classification extension: of each row its `k` greatest elements as `score:position:name`, all that a row
/// has counted through.
fn classified(
    output: &NamedTensor,
    k: usize,
    Columns { batched, scored }: Columns<'_>,
) -> Result<NamedTensor, Problem> {
    let refuse = || {
        let name = short(&output.name);
        let detail = format!("output `{name}` has no numbers whose greatest could be its classes");
        Problem::new(Code::InvalidTensor, detail).field("outputs")
    };
    let tensor = &output.tensor;
    let rows = if batched { tensor.rows().max(1) } else { 1 };
    let columns = tensor.len() / rows;
    let likely = likely(tensor, columns, k).filter(|_| columns > 0);
    let likely = likely.ok_or_else(refuse)?;
    let names = scored
        .filter(|scored| scored.output == output.name)
        .map_or(&[][..], |scored| &scored.classes);
    let is_float = convert::is_float(tensor.data_type());
    let text = |of: &Likely| {
        let Likely { class, score } = *of;
        let score = match is_float {
            true => format!("{score:.6}"),
            false => format!("{score}"),
        };
        Bytes::from(match names.get(class) {
            Some(name) => format!("{score}:{class}:{name}"),
            None => format!("{score}:{class}"),
        })
    };
    let width = likely.first().map_or(0, Vec::len);
    let texts = likely.iter().flatten().map(text).collect();
    let tensor = Tensor::from_strings(vec![likely.len(), width], texts);
    let tensor = tensor.map_err(|_| refuse())?;
    Ok(NamedTensor::new(output.name.clone(), tensor))
}

fn head(name: &str, id: Option<&str>, answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"model_name\":");
    write::string(&mut out, name);
    out.extend_from_slice(b",\"model_version\":\"1\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        write::string(&mut out, id);
    }
    out.extend_from_slice(b",\"parameters\":{\"model\":");
    write::string(&mut out, answer.model.as_str());
    out.extend_from_slice(b",\"variant\":");
    write::string(&mut out, answer.variant.as_str());
    let met: &[u8] = if answer.targets_met {
        b"true"
    } else {
        b"false"
    };
    out.extend_from_slice(b",\"slo_met\":");
    out.extend_from_slice(met);
    out.extend_from_slice(b",\"batch_rows\":");
    write::integer(&mut out, answer.timings.batch_rows);
    out.extend_from_slice(b",\"queue_us\":");
    write::microseconds(&mut out, answer.timings.queue_us);
    out.extend_from_slice(b",\"compute_us\":");
    write::microseconds(&mut out, answer.timings.compute_us);
    out.extend_from_slice(b",\"cost_usd\":");
    write::float(&mut out, answer.cost_usd);
    // Parameters are text, numbers or booleans: of the explanation there is only the sentence.
    if let Some(explanation) = &answer.explanation {
        out.extend_from_slice(b",\"explanation\":");
        write::string(&mut out, &explanation.reason);
    }
    out.push(b'}');
    out
}

// === impl InferBody ===

impl<'a> InferBody<'a> {
    /// Reads the JSON part.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Problem> {
        json::borrowed(bytes)
    }

    /// Which outputs are wanted, without borrowing from the body.
    pub fn selection(&self) -> Selection {
        let wanted = |wanted: &Wanted<'_>| Chosen {
            name: wanted.name.0.as_ref().to_owned(),
            binary: wanted.parameters.binary_data,
            classes: wanted.parameters.classification.unwrap_or(0),
        };
        Selection {
            wanted: self.outputs.iter().map(wanted).collect(),
            binary: self.parameters.binary_data_output,
        }
    }
}

// === impl Parameters ===

impl Parameters<'_> {
    /// Targets: parameters, then headers, then the protocol's timeout.
    pub fn targets(&self, headers: &HeaderMap) -> Result<TargetsBody, Problem> {
        let latency_ms = match self.slo_latency_ms {
            Some(value) => Some(value),
            None => number(headers, "x-slo-latency-ms")?.or(self.timeout_ms()?),
        };
        let min_accuracy = match (self.slo_min_accuracy, self.slo_max_error) {
            (None, None) => number(headers, "x-slo-min-accuracy")?,
            (given, _) => given,
        };
        Ok(TargetsBody {
            latency_ms,
            min_accuracy,
            max_error: self.slo_max_error,
            max_cost_per_1k_usd: self.slo_max_cost_per_1k_usd,
        })
    }

    /// Whether the closest variant may answer when nothing meets the targets.
    pub fn best_effort(&self) -> Result<bool, Problem> {
        match self.slo_policy.as_ref().map(|policy| policy.0.as_ref()) {
            None | Some("reject") => Ok(false),
            Some("best_effort") => Ok(true),
            Some(other) => {
                let other = short(other);
                let detail = format!("`slo_policy` is `{other}`: use `reject` or `best_effort`");
                Err(Problem::new(Code::InvalidRequest, detail).field("parameters.slo_policy"))
            }
        }
    }

    fn timeout_ms(&self) -> Result<Option<f64>, Problem> {
        let Some(raw) = self.timeout else {
            return Ok(None);
        };
        let text = raw.get().trim_matches('"');
        let Some(microseconds) = digits(text) else {
            let text = short(text);
            let detail = format!("`timeout` is `{text}`: it must be a number of microseconds");
            return Err(Problem::new(Code::InvalidTarget, detail).field("parameters.timeout"));
        };
        Ok((microseconds > 0).then_some(microseconds as f64 / 1e3))
    }
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<f64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .map(str::trim)
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| number.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => {
            let detail = format!("header `{name}` is not a number");
            Err(Problem::new(Code::InvalidTarget, detail).field(name))
        }
    }
}

// === impl Selection ===

impl Selection {
    /// Refuses outputs that the model does not have.
    pub fn check(&self, known: &[sextant_types::TensorSpec]) -> Result<(), Problem> {
        let unknown = |name: &str| known.iter().all(|spec| spec.name != name);
        match self.wanted.iter().find(|chosen| unknown(&chosen.name)) {
            None => Ok(()),
            Some(chosen) => {
                let detail = format!("the model has no output `{}`", short(&chosen.name));
                Err(Problem::new(Code::InvalidTensor, detail).field("outputs"))
            }
        }
    }

    /// How an output is answered; none where it is not wanted.
    fn choose(&self, name: &str) -> Option<Form> {
        if self.wanted.is_empty() {
            return Some(Form {
                binary: self.binary,
                classes: 0,
            });
        }
        let chosen = self.wanted.iter().find(|chosen| chosen.name == name)?;
        Some(Form {
            binary: chosen.binary.unwrap_or(self.binary),
            classes: chosen.classes,
        })
    }

    /// Whether classes are wanted, which may have names.
    pub fn any_classes(&self) -> bool {
        self.wanted.iter().any(|chosen| chosen.classes > 0)
    }

    fn any_binary(&self) -> bool {
        let asked = |chosen: &Chosen| chosen.binary.unwrap_or(self.binary);
        if self.wanted.is_empty() {
            self.binary
        } else {
            self.wanted.iter().any(asked)
        }
    }
}
