//! Parameters of requests and answers: the names are those of the HTTP routes, and a value has a type of its own.

use std::{borrow::Cow, collections::BTreeMap};

use sextant_rpc::Answer;
use sextant_types::Code;

use super::proto::{InferParameter, infer_parameter::ParameterChoice};
use crate::{
    codec::{Part, short},
    demands::{self, Demands},
    extract::digits,
    problem::Problem,
};

/// Parameters of a request or of one of its tensors. An unknown parameter is ignored, unless its name begins as those
/// of targets do.
#[derive(Clone, Copy)]
pub struct Parameters<'a>(pub &'a BTreeMap<String, InferParameter>);

// === impl Parameters ===

impl<'a> Parameters<'a> {
    /// The demands of the query.
    pub fn demands(self) -> Result<Demands, Problem> {
        demands::check_parameters(self.0.keys().map(String::as_str))?;
        let policy = self.get("slo_policy").map(text);
        let timeout = self.get("timeout").map(text);
        let timeout = timeout.map(|text| demands::timeout_us(&text));
        if let Some(level) = self.get("priority") {
            demands::check_priority(&text(level))?;
        }
        Ok(Demands {
            latency_ms: self.number("slo_latency_ms")?,
            min_accuracy: self.number("slo_min_accuracy")?,
            max_error: self.number("slo_max_error")?,
            min_relative_accuracy: self.number("slo_min_relative_accuracy")?,
            max_cost_per_1k_usd: self.number("slo_max_cost_per_1k_usd")?,
            prefer: demands::prefer(self.get("slo_prefer").map(text).as_deref(), "slo_prefer")?,
            sticky: self.get("slo_sticky").map(|key| text(key).into_owned()),
            preset: self.get("slo_preset").map(|name| text(name).into_owned()),
            best_effort: demands::best_effort(policy.as_deref())?,
            timeout_us: timeout.transpose()?.unwrap_or(0),
            explain: self.flag("explain")?,
        })
    }

    /// How many of the greatest elements of an output the client asks for; 0 is all.
    pub fn classes(self) -> Result<usize, Problem> {
        let Some(value) = self.get("classification") else {
            return Ok(0);
        };
        text(value)
            .parse()
            .map_err(|_| refuse("classification", value, "a whole number, 0 or more"))
    }

    /// The part of shared memory that holds a tensor, if one does.
    pub fn part(self) -> Result<Option<Part>, Problem> {
        let Some(region) = self.get("shared_memory_region") else {
            return Ok(None);
        };
        let size = self.bytes("shared_memory_byte_size")?;
        Ok(Some(Part {
            region: text(region).into_owned(),
            offset: self.bytes("shared_memory_offset")?.unwrap_or(0),
            byte_size: size.ok_or_else(Part::without_size)?,
        }))
    }

    fn bytes(self, name: &'static str) -> Result<Option<u64>, Problem> {
        let bytes =
            |value| digits(&text(value)).ok_or_else(|| refuse(name, value, "a number of bytes"));
        self.get(name).map(bytes).transpose()
    }

    fn get(self, name: &str) -> Option<&'a ParameterChoice> {
        self.0.get(name)?.parameter_choice.as_ref()
    }

    /// A number. Text is accepted too, because clients can send a fraction in no other way.
    fn number(self, name: &'static str) -> Result<Option<f64>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = match value {
            ParameterChoice::DoubleParam(number) => Some(*number),
            ParameterChoice::BoolParam(_) => None,
            other => text(other).parse().ok(),
        };
        let number = number.filter(|number| number.is_finite());
        number
            .map(Some)
            .ok_or_else(|| refuse(name, value, "a number"))
    }

    fn flag(self, name: &'static str) -> Result<bool, Problem> {
        match self.get(name) {
            None => Ok(false),
            Some(ParameterChoice::BoolParam(flag)) => Ok(*flag),
            Some(value) => Err(refuse(name, value, "`true` or `false`")),
        }
    }
}

fn refuse(name: &str, value: &ParameterChoice, what: &str) -> Problem {
    let value = text(value);
    let detail = format!(
        "parameter `{name}` is `{}`: it must be {what}",
        short(&value)
    );
    Problem::new(Code::InvalidTarget, detail).field(format!("parameters.{name}"))
}

/// A value as it would stand in JSON, without quotation marks.
fn text(value: &ParameterChoice) -> Cow<'_, str> {
    match value {
        ParameterChoice::StringParam(text) => Cow::Borrowed(text),
        ParameterChoice::BoolParam(flag) => Cow::Owned(flag.to_string()),
        ParameterChoice::Int64Param(number) => Cow::Owned(number.to_string()),
        ParameterChoice::Uint64Param(number) => Cow::Owned(number.to_string()),
        ParameterChoice::DoubleParam(number) => Cow::Owned(number.to_string()),
    }
}

/// The parameters that say where in shared memory an output is.
pub fn of_part(part: &Part) -> BTreeMap<String, InferParameter> {
    let bytes = |bytes: u64| ParameterChoice::Int64Param(bytes.cast_signed());
    let told = [
        (
            "shared_memory_region",
            ParameterChoice::StringParam(part.region.clone()),
        ),
        ("shared_memory_offset", bytes(part.offset)),
        ("shared_memory_byte_size", bytes(part.byte_size)),
    ];
    let told = told.map(|(name, value)| {
        let parameter_choice = Some(value);
        (name.to_owned(), InferParameter { parameter_choice })
    });
    BTreeMap::from(told)
}

/// The parameters of an answer, the same as over HTTP.
pub fn of_answer(answer: &Answer, token: Option<String>) -> BTreeMap<String, InferParameter> {
    let text = |text: &str| ParameterChoice::StringParam(text.to_owned());
    let timings = &answer.timings;
    let explanation = answer.explanation.as_ref();
    let told = [
        ("model", Some(text(answer.model.as_str()))),
        ("variant", Some(text(answer.variant.as_str()))),
        (
            "slo_met",
            Some(ParameterChoice::BoolParam(answer.targets_met)),
        ),
        (
            "batch_rows",
            Some(ParameterChoice::Int64Param(timings.batch_rows.into())),
        ),
        (
            "queue_us",
            Some(ParameterChoice::DoubleParam(timings.queue_us)),
        ),
        (
            "compute_us",
            Some(ParameterChoice::DoubleParam(timings.compute_us)),
        ),
        (
            "cost_usd",
            Some(ParameterChoice::DoubleParam(answer.cost_usd)),
        ),
        ("feedback_token", token.map(ParameterChoice::StringParam)),
        ("explanation", explanation.map(|it| text(&it.reason))),
    ];
    let told = told.into_iter().filter_map(|(name, value)| {
        let parameter_choice = Some(value?);
        Some((name.to_owned(), InferParameter { parameter_choice }))
    });
    told.collect()
}
