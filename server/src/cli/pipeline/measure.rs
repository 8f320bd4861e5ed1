//! `sextant pipeline measure` and `tune`: the accuracy and the cost of a pipeline as a whole.
//!
//! Every record of a validation set is sent as a query of its own, as clients send it, and the answers are scored as a
//! registration scores variants. A cascade asks an expensive model if a cheap one is unsure: `tune` tries thresholds
//! for that on the set, each in a pipeline of its own, and registers the cheapest pipeline that is accurate enough.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use sextant_rpc::examine::{Examination, Examine as _, Examinee};
use sextant_types::{
    Accuracy, ApplicationId, DataType, Metric, NamedTensor, Signature, Tensor, TensorSpec,
    convert::{self, Number},
};
use sextant_variant_gen::Examiner;

use super::{
    super::{
        Client, Error, Output,
        output::{Table, cell, rows, short},
    },
    PATH, read,
};

/// What stands for the threshold in a definition.
const PLACEHOLDER: &str = "THRESHOLD";

/// Tries of one query while what it asks is being loaded, and between two of them.
const TRIES: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(50);

/// Codes of what may pass.
const PASSING: [&str; 5] = [
    "warming",
    "overloaded",
    "unavailable",
    "model_not_ready",
    "deadline_exceeded",
];

/// Measure the accuracy of a pipeline as a whole: ask it each record of a validation set.
#[derive(Debug, clap::Args)]
pub struct Measure {
    /// Its name.
    name: ApplicationId,
    #[command(flatten)]
    by: MeasureOptions,
}

/// Choose the threshold of a cascade on a validation set, and register the pipeline with it.
#[derive(Debug, clap::Args)]
pub struct Tune {
    /// The definition, with `THRESHOLD` where the threshold is to stand in a step's `when`.
    file: PathBuf,
    #[command(flatten)]
    by: MeasureOptions,
    /// Lowest accuracy of the pipeline as a whole, by the lower end of its interval.
    #[arg(long)]
    min_accuracy: f64,
    /// The thresholds to try.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NUMBERS",
        default_value = "0,0.5,0.6,0.7,0.8,0.9,0.95,0.98,0.99,1.01"
    )]
    thresholds: Vec<f64>,
}

/// By what a pipeline is measured.
#[derive(Debug, clap::Args)]
struct MeasureOptions {
    /// A validation set for the pipeline's inputs: NPZ, CSV or JSON lines, with labels.
    #[arg(long, value_name = "FILE")]
    validation: PathBuf,
    /// The metric: `top1`, `exact`, `mae`, ..
    #[arg(long, default_value = "top1")]
    metric: String,
    /// The output that is scored; if it is left out, the one that suits the metric.
    #[arg(long, value_name = "NAME")]
    output: Option<String>,
}

/// What was measured.
struct MeasureResult {
    accuracy: Accuracy,
    cost_per_1k_usd: f64,
}

// === impl Measure ===

impl Measure {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let measured = self.by.measure(client, self.name.as_str()).await?;
        let mut document = measured.document();
        document["pipeline"] = json!(self.name);
        output.either(&document, || {
            format!("pipeline `{}`: {}", self.name, measured.text())
        })
    }
}

// === impl Tune ===

impl Tune {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let definition = String::from_utf8(read(&self.file)?);
        let definition =
            definition.map_err(|_| Error::Usage("the definition is no UTF-8".to_owned()))?;
        if !definition.contains(PLACEHOLDER) {
            let text = format!(
                "the definition has no `{PLACEHOLDER}`: write it in a step's `when` in place of the number"
            );
            return Err(Error::Usage(text));
        }
        let metric = self.by.metric()?;
        let least = metric.quality(self.min_accuracy);
        let mut tried = Vec::with_capacity(self.thresholds.len());
        for threshold in &self.thresholds {
            let text = definition.replace(PLACEHOLDER, &threshold.to_string());
            tried.push((*threshold, self.trial(client, text).await?));
        }
        let good = tried
            .iter()
            .filter(|(_, it)| it.accuracy.quality_bound() >= least);
        let best = good.min_by(|a, b| a.1.cost_per_1k_usd.total_cmp(&b.1.cost_per_1k_usd));
        let chosen = match best {
            Some((threshold, _)) => {
                let text = definition.replace(PLACEHOLDER, &threshold.to_string());
                let made = put(client, &checked_name(client, &text).await?, text).await?;
                json!({"threshold": threshold, "pipeline": made["name"], "version": made["version"]})
            }
            None => Value::Null,
        };
        let rows = tried.iter().map(|(threshold, measured)| {
            let mut row = measured.document();
            row["threshold"] = json!(threshold);
            row
        });
        let document = json!({"tried": rows.collect::<Vec<_>>(), "chosen": chosen});
        output.either(&document, || text(&tried, &document["chosen"]))?;
        match document["chosen"].is_null() {
            true => Err(Error::NoThreshold {
                least: self.min_accuracy,
            }),
            false => Ok(()),
        }
    }

    /// Measures one threshold, as a pipeline that is deleted again.
    async fn trial(&self, client: &Client, text: String) -> Result<MeasureResult, Error> {
        let mut definition = checked(client, text).await?["definition"].take();
        let name = format!("{}-tuning", cell(&definition, "/name"));
        definition["name"] = json!(name);
        // It is measured here, and answers nobody else.
        if let Some(keys) = definition.as_object_mut() {
            keys.remove("validation");
            keys.remove("variant_of");
        }
        create(client, &name, definition.to_string()).await?;
        let measured = self.by.measure(client, &name).await;
        client
            .send(client.request(Method::DELETE, &["v1", "pipelines", &name]))
            .await?;
        measured
    }
}

/// What was tried, and what is registered now.
fn text(tried: &[(f64, MeasureResult)], chosen: &Value) -> String {
    let mut table = Table::new(&["#threshold", "accuracy", "#$ per 1000"]);
    for (threshold, measured) in tried {
        table.row(vec![
            threshold.to_string(),
            interval(&measured.accuracy),
            short(measured.cost_per_1k_usd),
        ]);
    }
    let mut lines = vec![table.render()];
    if !chosen.is_null() {
        lines.push(format!(
            "pipeline `{}` is registered with {}, version {}",
            cell(chosen, "/pipeline"),
            cell(chosen, "/threshold"),
            cell(chosen, "/version")
        ));
    }
    lines.join("\n")
}

/// What the server makes of a definition; nothing is registered.
async fn checked(client: &Client, text: String) -> Result<Value, Error> {
    let request = client.request_with(Method::POST, &PATH, &[("dry_run", "true")]);
    let request = request.header(header::CONTENT_TYPE, "application/yaml");
    client.answer(request.body(text)).await
}

async fn checked_name(client: &Client, text: &str) -> Result<String, Error> {
    Ok(cell(&checked(client, text.to_owned()).await?, "/name"))
}

/// Registers a pipeline that is deleted again, so never in place of one that is there.
async fn create(client: &Client, name: &str, text: String) -> Result<(), Error> {
    let request = client.request(Method::POST, &PATH);
    let request = request.header(header::CONTENT_TYPE, "application/yaml");
    match client.send(request.body(text)).await {
        Ok(made) if made.status() == StatusCode::CREATED => return Ok(()),
        // A pipeline with this name exists, the same or another one.
        Ok(_) => {}
        Err(Error::Problem(problem)) if problem.is("pipeline_exists") => {}
        Err(error) => return Err(error),
    }
    Err(Error::Usage(format!(
        "there is a pipeline `{name}`, and thresholds are tried under that name: delete it, or call one of the two otherwise"
    )))
}

async fn put(client: &Client, name: &str, text: String) -> Result<Value, Error> {
    let request = client.request(Method::PUT, &["v1", "pipelines", name]);
    let request = request.header(header::CONTENT_TYPE, "application/yaml");
    client.answer(request.body(text)).await
}

// === impl MeasureOptions ===

impl MeasureOptions {
    fn metric(&self) -> Result<Metric, Error> {
        let unknown = || {
            Error::Usage(format!(
                "there is no metric `{}`: use {}",
                self.metric,
                Metric::names()
            ))
        };
        Metric::parse(&self.metric).ok_or_else(unknown)
    }

    /// Asks every record.
    async fn measure(&self, client: &Client, pipeline: &str) -> Result<MeasureResult, Error> {
        let metric = self.metric()?;
        let shown: Value = client.get(&["v1", "pipelines", pipeline]).await?;
        let signature = signature(&shown)?;
        let set = Bytes::from(read(&self.validation)?);
        let examination = Examination {
            set: &set,
            metric,
            output: self.output.as_deref(),
            signature: &signature,
        };
        let mut asking = PipelineExaminee {
            client,
            pipeline,
            cost_usd: 0.0,
            failed: None,
        };
        let accuracy = Examiner.examine(examination, &mut asking).await;
        match (accuracy, asking.failed) {
            (Ok(accuracy), _) => Ok(MeasureResult {
                accuracy,
                cost_per_1k_usd: asking.cost_usd / accuracy.records.max(1) as f64 * 1000.0,
            }),
            (Err(_), Some(failed)) => Err(failed),
            (Err(error), None) => Err(Error::Usage(error.to_string())),
        }
    }
}

/// Asks a pipeline.
struct PipelineExaminee<'a> {
    client: &'a Client,
    pipeline: &'a str,
    cost_usd: f64,
    /// Why a record was not answered.
    failed: Option<Error>,
}

#[async_trait]
impl Examinee for PipelineExaminee<'_> {
    async fn answer(
        &mut self,
        record: Vec<NamedTensor>,
        output: &str,
        _: (usize, usize),
    ) -> Result<Tensor, String> {
        let asked = ask(self.client, self.pipeline, &record).await;
        let answered = asked.and_then(|answer| {
            self.cost_usd += answer["cost_usd"].as_f64().unwrap_or_default();
            tensor(&answer, output)
        });
        answered.map_err(|error| {
            let text = error.to_string();
            self.failed = Some(error);
            text
        })
    }
}

/// The signature of a pipeline.
fn signature(shown: &Value) -> Result<Signature, Error> {
    let unusable = || Error::Answer {
        reason: format!("the pipeline cannot run: {}", cell(shown, "/unusable")),
    };
    let specs = |pointer: &str| -> Option<Vec<TensorSpec>> {
        let specs = rows(shown, pointer).iter().map(|spec| {
            let shape = spec["shape"].as_array()?.iter();
            Some(TensorSpec {
                name: spec["name"].as_str()?.to_owned(),
                data_type: DataType::parse(spec["datatype"].as_str()?)?,
                shape: shape.map(|size| size.as_u64()).collect(),
            })
        });
        specs.collect()
    };
    Ok(Signature {
        inputs: specs("/signature/inputs").ok_or_else(unusable)?,
        outputs: specs("/signature/outputs").ok_or_else(unusable)?,
        batched: false,
    })
}

/// Asks one record, again while what it asks is on its way.
async fn ask(client: &Client, pipeline: &str, record: &[NamedTensor]) -> Result<Value, Error> {
    let inputs = record.iter().map(input);
    let inputs: Vec<Value> = inputs.collect::<Result<_, Error>>()?;
    let query = json!({"application": pipeline, "inputs": inputs});
    for _ in 1..TRIES {
        match client.post(&["v1", "queries"], &query).await {
            Err(Error::Problem(problem)) if PASSING.iter().any(|code| problem.is(code)) => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    client.post(&["v1", "queries"], &query).await
}

fn input(input: &NamedTensor) -> Result<Value, Error> {
    let tensor = &input.tensor;
    let data: Vec<Value> = match convert::numbers(tensor) {
        Some(numbers) => numbers.map(number).collect(),
        None => {
            let texts = tensor.texts().into_iter().flat_map(|texts| texts.iter());
            let texts = texts.map(|text| std::str::from_utf8(text).map(Value::from));
            texts.collect::<Result<Vec<Value>, _>>().map_err(|_| {
                let text = format!(
                    "`{}` of a record is no UTF-8, and a query in JSON holds nothing else: give the definition a `validation`, and \
                     the service measures it",
                    input.name
                );
                Error::Usage(text)
            })?
        }
    };
    Ok(
        json!({"name": input.name, "datatype": tensor.data_type().name(), "shape": tensor.shape(), "data": data}),
    )
}

/// An element as the service reads it: an integer has no point.
fn number(of: Number) -> Value {
    match of {
        Number::Integer(value) => match i64::try_from(value) {
            Ok(value) => json!(value),
            Err(_) => json!(u64::try_from(value).ok()),
        },
        Number::Float(value) => json!(value),
    }
}

/// An element of an answer in the bytes of its type.
fn element(value: &Value, data_type: DataType) -> Option<Vec<u8>> {
    let signed = value.as_i64().map(i128::from);
    let integer = signed.or_else(|| value.as_u64().map(i128::from));
    match (data_type, integer) {
        (DataType::Int64, Some(it)) => Some(i64::try_from(it).ok()?.to_le_bytes().to_vec()),
        (DataType::Uint64, Some(it)) => Some(u64::try_from(it).ok()?.to_le_bytes().to_vec()),
        _ => {
            let number = value.as_bool().map(|it| f64::from(u8::from(it)));
            data_type.element(number.or_else(|| value.as_f64())?)
        }
    }
}

/// An output of an answer.
fn tensor(answer: &Value, name: &str) -> Result<Tensor, Error> {
    let unexpected = || Error::Answer {
        reason: format!("it has no output `{name}` that can be read"),
    };
    let found = rows(answer, "/outputs")
        .iter()
        .find(|output| output["name"] == name);
    let made = found.and_then(|output| {
        let data_type = DataType::parse(output["datatype"].as_str()?)?;
        let shape = output["shape"].as_array()?.iter();
        let shape: Option<Vec<usize>> = shape
            .map(|size| usize::try_from(size.as_u64()?).ok())
            .collect();
        let data = output["data"].as_array()?.iter();
        if data_type == DataType::Bytes {
            let texts: Option<Vec<&str>> = data.map(Value::as_str).collect();
            return Tensor::from_strings(shape?, texts?).ok();
        }
        let mut bytes = BytesMut::new();
        for value in data {
            bytes.extend_from_slice(&element(value, data_type)?);
        }
        Tensor::from_bytes(data_type, shape?, bytes.freeze()).ok()
    });
    made.ok_or_else(unexpected)
}

// === impl MeasureResult ===

impl MeasureResult {
    fn document(&self) -> Value {
        let Accuracy {
            metric,
            value,
            lower,
            upper,
            records,
            ..
        } = self.accuracy;
        json!({"metric": metric.name(), "value": value, "lower": lower, "upper": upper, "records": records,
            "cost_per_1k_usd": self.cost_per_1k_usd})
    }

    fn text(&self) -> String {
        format!(
            "{} {} over {} records, ${} for a thousand queries",
            self.accuracy.metric.name(),
            interval(&self.accuracy),
            self.accuracy.records,
            short(self.cost_per_1k_usd)
        )
    }
}

/// `0.9520 (0.9310 to 0.9670)`.
fn interval(accuracy: &Accuracy) -> String {
    let Accuracy {
        value,
        lower,
        upper,
        ..
    } = accuracy;
    format!("{value:.4} ({lower:.4} to {upper:.4})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_what_they_are() {
        let ids = [9_007_199_254_740_993_i64, -1];
        let ids = Tensor::from_elements(vec![1, 2], &ids).expect("ids");
        let asked = input(&NamedTensor::new("ids", ids.clone())).expect("an input");
        assert_eq!(asked["data"].to_string(), "[9007199254740993,-1]");
        let answer = json!({"outputs": [asked]});
        assert_eq!(tensor(&answer, "ids").expect("a tensor"), ids);
    }

    #[test]
    fn bytes_that_are_no_text_are_not_sent_as_other_ones() {
        let picture = Bytes::from_static(b"\xff\xd8");
        let picture = Tensor::from_strings(vec![1], vec![picture]).expect("bytes");
        assert!(input(&NamedTensor::new("image", picture)).is_err());
    }
}
