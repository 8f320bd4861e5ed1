//! Bodies of the protocol: JSON, and JSON followed by binary tensors.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use sextant_rpc::Answer;
use utoipa::ToSchema;

use super::{
    demands::{self, Demands},
    selection::{Output, SelectedOutput, Selection},
};
use crate::{
    codec::{MOST_TENSORS, TensorBody, TensorParameters, Text, binary, write},
    json,
    problem::Problem,
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
    #[serde(borrow, default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub parameters: Parameters<'a>,
    /// One tensor for each input.
    #[serde(borrow, deserialize_with = "json::at_most::<_, _, MOST_TENSORS>")]
    #[schema(value_type = Vec<TensorBody<'_>>)]
    pub inputs: Vec<TensorBody<'a>>,
    /// The requested outputs; if it is left out, all.
    #[serde(
        borrow,
        default,
        deserialize_with = "json::at_most_or_default::<_, _, MOST_TENSORS>"
    )]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    pub outputs: Vec<RequestedOutput<'a>>,
}

/// Parameters of a request. Others are ignored, unless their names begin as those of targets do.
#[derive(Debug, Default)]
pub struct Parameters<'a> {
    known: TargetParameters<'a>,
    /// The first name that begins as those of targets do and is not one of them.
    misspelt: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct TargetParameters<'a> {
    slo_latency_ms: Option<f64>,
    slo_min_accuracy: Option<f64>,
    slo_max_error: Option<f64>,
    slo_min_relative_accuracy: Option<f64>,
    slo_max_cost_per_1k_usd: Option<f64>,
    #[serde(borrow, default)]
    slo_prefer: Option<Text<'a>>,
    #[serde(borrow, default)]
    slo_preset: Option<Text<'a>>,
    #[serde(borrow, default)]
    slo_sticky: Option<Text<'a>>,
    #[serde(borrow, default)]
    slo_policy: Option<Text<'a>>,
    #[serde(borrow, default)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow, default)]
    priority: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "json::or_default")]
    binary_data_output: bool,
    #[serde(default, deserialize_with = "json::or_default")]
    explain: bool,
}

/// An output that a request asks for.
#[derive(Debug, Deserialize)]
pub struct RequestedOutput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default, deserialize_with = "json::or_default")]
    parameters: TensorParameters<'a>,
}

/// The answer: all of it in JSON, or with outputs in binary behind the JSON. In the latter case, the first value is the
/// length of the JSON.
pub fn answer(
    named: (&str, u32, Option<&str>),
    told: (&Answer, Option<&str>),
    outputs: &[Output],
) -> (Option<usize>, Vec<u8>) {
    let mut out = head(named, told);
    out.extend_from_slice(b",\"outputs\":");
    write::list(&mut out, outputs, |out, output| match output {
        Output {
            named,
            part: Some(part),
            ..
        } => {
            let place = (&*part.region, part.offset, part.byte_size);
            write::elsewhere(out, named, place);
        }
        Output {
            named,
            binary: true,
            ..
        } => {
            write::binary_tensor(out, named, binary::size(&named.tensor));
        }
        Output { named, .. } => write::tensor(out, named),
    });
    out.push(b'}');
    let json_bytes = out.len();
    let binaries = || {
        let is_behind = |output: &&Output| output.binary && output.part.is_none();
        outputs.iter().filter(is_behind).map(|it| &it.named.tensor)
    };
    out.reserve_exact(binaries().map(binary::size).sum());
    binaries().for_each(|tensor| binary::append(&mut out, tensor));
    (binaries().next().map(|_| json_bytes), out)
}

fn head(
    (name, version, id): (&str, u32, Option<&str>),
    (answer, token): (&Answer, Option<&str>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"model_name\":");
    write::string(&mut out, name);
    out.extend_from_slice(b",\"model_version\":\"");
    write::integer(&mut out, version);
    out.push(b'"');
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
    if let Some(token) = token {
        out.extend_from_slice(b",\"feedback_token\":");
        write::string(&mut out, token);
    }
    // Parameters are text, numbers or booleans, so the explanation consists of its sentence alone.
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

    /// The outputs that the request asks for, without borrowing from the body.
    pub fn selection(&self) -> Result<Selection, Problem> {
        let wanted = |wanted: &RequestedOutput<'_>| {
            Ok(SelectedOutput {
                name: wanted.name.0.as_ref().to_owned(),
                binary: wanted.parameters.binary_data,
                classes: wanted.parameters.classification.unwrap_or(0),
                part: wanted.parameters.part()?,
            })
        };
        let wanted = self.outputs.iter().map(wanted);
        Ok(Selection {
            wanted: wanted.collect::<Result<_, Problem>>()?,
            binary: self.parameters.known.binary_data_output,
        })
    }
}

// === impl Parameters ===

impl Parameters<'_> {
    /// The demands of the query.
    pub fn demands(&self) -> Result<Demands, Problem> {
        demands::check_parameters(self.misspelt.as_deref().into_iter())?;
        let known = &self.known;
        let policy = known.slo_policy.as_ref().map(|policy| policy.0.as_ref());
        let prefer = known.slo_prefer.as_ref().map(|prefer| prefer.0.as_ref());
        let timeout = known.timeout.map(|raw| demands::timeout_us(raw.get()));
        if let Some(raw) = known.priority {
            demands::check_priority(raw.get())?;
        }
        Ok(Demands {
            latency_ms: known.slo_latency_ms,
            min_accuracy: known.slo_min_accuracy,
            max_error: known.slo_max_error,
            min_relative_accuracy: known.slo_min_relative_accuracy,
            max_cost_per_1k_usd: known.slo_max_cost_per_1k_usd,
            prefer: demands::prefer(prefer, "parameters.slo_prefer")?,
            sticky: known
                .slo_sticky
                .as_ref()
                .map(|key| key.0.as_ref().to_owned()),
            preset: known
                .slo_preset
                .as_ref()
                .map(|name| name.0.as_ref().to_owned()),
            best_effort: demands::best_effort(policy)?,
            timeout_us: timeout.transpose()?.unwrap_or(0),
            explain: known.explain,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parameters<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut misspelt = None;
        let known = from.deserialize_map(Reader(&mut misspelt))?;
        Ok(Self { known, misspelt })
    }
}

/// Reads the known parameters, and notes a misspelt one.
struct Reader<'m>(&'m mut Option<String>);

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = TargetParameters<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<TargetParameters<'de>, M::Error> {
        let names = Names {
            map,
            misspelt: self.0,
        };
        TargetParameters::deserialize(MapAccessDeserializer::new(names))
    }
}

/// The members of a map; it checks each name on the way.
struct Names<'m, M> {
    map: M,
    misspelt: &'m mut Option<String>,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for Names<'_, M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, M::Error> {
        let Some(Text(name)) = self.map.next_key::<Text<'de>>()? else {
            return Ok(None);
        };
        if self.misspelt.is_none() && demands::check_parameters([&*name].into_iter()).is_err() {
            *self.misspelt = Some(name.as_ref().to_owned());
        }
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(seed)
    }
}
