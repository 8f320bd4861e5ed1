//! `sextant register`: upload a model and its validation set, follow the job, show the variants.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use reqwest::{Method, multipart::Form};
use serde_json::{Value, json};
use sextant_onnx::external;
use sextant_types::{ApplicationId, Metric, ModelId};

use super::{
    Client, Error, Output,
    follow::{self, Job},
    inspect,
    output::{cell, tell},
    upload::{self, Upload},
    variants,
};

mod convert;
#[cfg(feature = "datasets")]
mod dataset;
#[cfg(not(feature = "datasets"))]
#[path = "register/dataset/absent.rs"]
mod dataset;
mod declared;
mod folder;
mod options;

use convert::{Conversion, ConvertedModel, Source};
use dataset::Dataset;
use options::Images;

pub(super) use declared::Declaration;
pub(super) use folder::Folder;

/// Register a trained model and follow how its variants are made and measured.
#[derive(Debug, Args)]
pub struct Register {
    /// The application of the model; the command creates it if it does not exist.
    #[arg(long, short, value_name = "NAME", required_unless_present = "retry")]
    application: Option<ApplicationId>,
    /// How predictions are scored, for a new application: top1, topK such as top5, exact, f1, f1_micro,
    /// f1_multilabel, auc, log_loss, mae, rmse, mape, r2, cosine, token_accuracy, iou, map or custom
    /// (docs/models.md) [default: top1].
    #[arg(long, value_parser = metric)]
    metric: Option<String>,
    /// The model's name.
    #[arg(long, value_name = "NAME")]
    name: ModelId,
    /// The ONNX file; a folder with one, as exporters write it; or a zip, tar or gzipped tar of such a folder. The
    /// command converts models that scikit-learn, LightGBM, XGBoost, PyTorch, Keras, TensorFlow or Hugging Face's
    /// transformers have saved, with `--python`.
    #[arg(long, value_name = "FILE", required_unless_present = "retry")]
    model: Option<PathBuf>,
    /// The validation set: inputs with their labels, as an `.npz` archive, JSON lines, CSV or Parquet, or as a folder
    /// of JPEG or PNG images with a `labels.csv` (`file,label`) or with a folder for each class. A set without labels
    /// needs `--no-labels` [default: `validation.npz`, `.jsonl`, `.csv` or `.parquet` in the model's folder].
    #[arg(long, value_name = "FILE")]
    validation: Option<PathBuf>,
    /// The validation set has no labels. The service then measures no accuracy, but the agreement of each variant
    /// with the file as it was uploaded. The agreement counts for `--min-relative-accuracy`, and not for
    /// `--min-accuracy`.
    #[arg(long)]
    no_labels: bool,
    /// A file beside the ONNX file that has the data of its tensors; may be repeated
    /// [default: those that the model names, in its folder].
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
    /// An ONNX graph that takes `labels` and the model's outputs and gives a score from 0 to 1 for each record: the
    /// metric of an application with `--metric custom`.
    #[arg(long, value_name = "FILE")]
    metric_model: Option<PathBuf>,
    #[command(flatten)]
    conversion: Conversion,
    #[command(flatten)]
    declaration: Declaration,
    /// The names of the classes, as a list or as a file with one name in each line. They are in the order of the
    /// scored output's columns or, if the file names its own classes, in the order of the application's classes
    /// [default: those that the model names].
    #[arg(long, value_name = "NAME,NAME..|FILE")]
    classes: Option<PathBuf>,
    /// The input that is 1 for given elements and 0 for padding. With it, queries of different lengths share batches.
    #[arg(long, value_name = "INPUT")]
    mask: Option<String>,
    /// The value with which an input is padded; 0 if it is not given.
    #[arg(long, value_name = "INPUT=VALUE", requires = "mask")]
    pad: Vec<String>,
    /// Repeat a registration that failed, with the files that were sent then.
    #[arg(
        long,
        conflicts_with_all = [
            "application", "metric", "model", "validation", "no_labels", "data", "metric_model", "output", "constant", "input_name", "output_name", "classes", "mask", "pad", "python", "trust", "keep_onnx",
            "image_size",
            "image_resize", "image_mean", "image_std", "images",
        ]
    )]
    retry: bool,
    /// Return as soon as the job is queued.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    images: Images,
}

/// The files beside a model: those that were named, or those that it names and that lie in its folder.
pub(super) fn data_files(model: &Path, named: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let read = std::fs::read(model).map_err(|source| Error::Io {
        path: model.to_owned(),
        source,
    })?;
    // The service refuses a file that is not a model, and says why.
    let locations = external::locations(&read.into()).unwrap_or_default();
    let folder = model.parent().unwrap_or(Path::new(""));
    let within = locations.iter().filter(|location| stays_within(location));
    let files = within.map(|location| folder.join(location));
    Ok(files.filter(|file| file.is_file()).collect())
}

/// Names in a list, a line each; `None` where it is a file, or no list.
fn listed(names: &Path) -> Option<String> {
    let list = names.to_str().filter(|text| text.contains(','))?;
    let lines = list
        .split(',')
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("\n");
    (!names.exists()).then_some(lines)
}

/// Whether a path leads nowhere but into the folder that it begins in.
fn stays_within(location: &str) -> bool {
    let parts = Path::new(location).components();
    parts
        .into_iter()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// A metric by its name.
pub(super) fn metric(text: &str) -> Result<String, String> {
    Metric::parse(text)
        .map(Metric::name)
        .ok_or_else(|| format!("it must be {}", Metric::names()))
}

impl Register {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let accepted = self.begin(client, output).await?;
        let job = cell(&accepted, "/job");
        if self.no_wait {
            return output.either(&accepted, || format!("job `{job}` is queued"));
        }
        let (job, document) = follow::follow(client, &job, output.json).await?;
        job.outcome()?;
        self.summary(client, &job, document, output).await
    }

    /// Has the server begin.
    async fn begin(&self, client: &Client, output: Output) -> Result<Value, Error> {
        // Without `--retry` the arguments contain both.
        let (Some(application), Some(model)) = (&self.application, &self.model) else {
            let path = ["v1", "models", self.name.as_str(), "registration"];
            return client.answer(client.request(Method::POST, &path)).await;
        };
        let beside = folder::validation(model);
        let validation = self.validation.as_ref().or(beside.as_ref());
        let converted = self.converted(model, validation, output).await?;
        let converted = converted.as_ref().map(ConvertedModel::path);
        let model = converted.as_ref().unwrap_or(model);
        let folder = Folder::open(model)?;
        let file = folder.as_ref().map_or(model, |folder| &folder.model);
        let data = data_files(file, &self.data)?;
        let validation = validation.ok_or_else(|| {
            let text = "there is no validation set: name it with `--validation FILE`";
            Error::Usage(text.to_owned())
        })?;
        let signature = || inspect::signature(file, &data, &self.declaration.declared());
        let dataset = Dataset::prepare(validation, (file, signature), &self.images, output.json)?;
        let classes = self.class_names(folder.as_ref(), &dataset).await?;
        let files = (
            Upload::open(file).await?,
            data,
            Upload::open(&dataset.path).await?,
        );
        self.ensure_application(client, application, output).await?;
        self.upload(client, application, files, classes, output)
            .await
    }

    /// The model as ONNX, where it is one of another library.
    async fn converted(
        &self,
        model: &Path,
        validation: Option<&PathBuf>,
        output: Output,
    ) -> Result<Option<ConvertedModel>, Error> {
        let table = validation.map(|path| Dataset::table(path)).transpose()?;
        let table = table.as_ref().and_then(Option::as_ref);
        let source = Source {
            model,
            validation: table
                .map_or(validation, |table| Some(&table.path))
                .map(PathBuf::as_path),
            images: &self.images,
        };
        self.conversion.convert(source, output.json).await
    }

    /// Creates the application where it is missing.
    async fn ensure_application(
        &self,
        client: &Client,
        application: &ApplicationId,
        output: Output,
    ) -> Result<(), Error> {
        let name = application.as_str();
        match client.get::<Value>(&["v1", "applications", name]).await {
            Ok(found) => {
                let metric = cell(&found, "/metric");
                self.agree(client, name, &metric, output).await
            }
            Err(Error::Problem(problem)) if problem.is("application_not_found") => {
                let metric = self.metric.as_deref().unwrap_or("top1");
                let body = json!({"name": name, "metric": metric});
                let path = ["v1", "applications"];
                client.post::<Value>(&path, &body).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Has an application scored by the metric that is asked for, as one whose first registration was refused for
    /// its metric.
    async fn agree(
        &self,
        client: &Client,
        application: &str,
        metric: &str,
        output: Output,
    ) -> Result<(), Error> {
        let Some(wanted) = self.metric.as_deref().filter(|wanted| *wanted != metric) else {
            return Ok(());
        };
        let path = ["v1", "applications", application];
        let change = client
            .request(Method::PATCH, &path)
            .json(&json!({"metric": wanted}));
        match client.answer::<Value>(change).await {
            Ok(_) if output.json => Ok(()),
            Ok(_) => {
                tell(&format!(
                    "application `{application}` was scored by `{metric}` and now is by `{wanted}`"
                ));
                Ok(())
            }
            Err(Error::Problem(problem)) if problem.is("in_use") => Err(Error::Usage(format!(
                "application `{application}` has models, which are scored by `{metric}`: leave `--metric {wanted}` \
                 out, or name another application"
            ))),
            Err(error) => Err(error),
        }
    }

    /// The names of the classes, a line each: those of the file, or what the model's folder says, or the folders
    /// that images lie in.
    async fn class_names(
        &self,
        folder: Option<&Folder>,
        dataset: &Dataset,
    ) -> Result<Option<String>, Error> {
        if let Some(path) = &self.classes {
            if let Some(names) = listed(path) {
                return Ok(Some(names));
            }
            let names = tokio::fs::read_to_string(path).await;
            let failed = |source| Error::Io {
                path: path.clone(),
                source,
            };
            return names.map_err(failed).map(Some);
        }
        let of_model = folder.map(|folder| &folder.classes);
        let known = of_model.filter(|names| !names.is_empty());
        let known = known.unwrap_or(&dataset.classes).join("\n");
        Ok(Some(known).filter(|names| !names.is_empty()))
    }

    async fn upload(
        &self,
        client: &Client,
        application: &ApplicationId,
        (model, data, validation): (Upload, Vec<PathBuf>, Upload),
        classes: Option<String>,
        output: Output,
    ) -> Result<Value, Error> {
        let mut beside = Vec::new();
        for file in &data {
            beside.push(Upload::open(file).await?);
        }
        let beside_bytes: u64 = beside.iter().map(Upload::length).sum();
        let total = model.length() + validation.length() + beside_bytes;
        let bar = match output.json {
            true => indicatif::ProgressBar::hidden(),
            false => upload::bar("upload", total),
        };
        let mut form = Form::new()
            .text("name", self.name.to_string())
            .text("application", application.to_string())
            .part("model", model.part(&bar))
            .part("validation", validation.part(&bar));
        for file in beside {
            form = form.part("data", file.part(&bar));
        }
        if let Some(path) = &self.metric_model {
            form = form.part("metric_model", Upload::open(path).await?.part(&bar));
        }
        if self.no_labels {
            form = form.text("labels", "none");
        }
        for (field, value) in self.declaration.fields() {
            form = form.text(field, value);
        }
        if let Some(names) = classes {
            form = form.text("classes", names);
        }
        if let Some(mask) = &self.mask {
            form = form.text("mask", mask.clone());
        }
        for pad in &self.pad {
            form = form.text("pad", pad.clone());
        }
        let request = client.request(Method::POST, &["v1", "models"]);
        let accepted = client.answer(request.multipart(form)).await;
        bar.finish_and_clear();
        accepted
    }

    async fn summary(
        &self,
        client: &Client,
        job: &Job,
        document: Value,
        output: Output,
    ) -> Result<(), Error> {
        // The model's id differs from its name for a later version.
        let model = document["model"].as_str().unwrap_or(self.name.as_str());
        let path = ["v1", "models", model, "variants"];
        let answer: Value = client.get(&path).await?;
        if output.json {
            return output.value(&json!({"job": document, "variants": answer["variants"]}));
        }
        let (frontier, all) = variants::frontier(&answer);
        let metric = frontier
            .first()
            .and_then(|it| it.pointer("/accuracy/metric"));
        let metric = metric.and_then(Value::as_str);
        let table = match frontier.is_empty() {
            true => variants::nothing(all),
            false => variants::table(&frontier).render(),
        };
        output.text(&format!(
            "registered `{model}` (job `{}`): {all} variants, {} on the frontier\n{}\n{}",
            job.id,
            frontier.len(),
            self.notes(&document["result"], metric),
            table
        ))
    }

    /// What was found out about the file, a line each.
    fn notes(&self, result: &Value, metric: Option<&str>) -> String {
        let scored = cell(result, "/scored_output");
        let is_agreement = result["measures"] == "agreement";
        let changes = result["changes"].as_array().into_iter().flatten();
        let changes = changes
            .filter_map(Value::as_str)
            .map(|it| format!("{it}\n"));
        let usual = result["usual"][1].as_f64().map_or_else(String::new, |accuracy| {
            let (name, variant) = (&self.name, cell(result, "/usual/0"));
            let agrees = if is_agreement { "agreement " } else { "" };
            format!("queries that name model `{name}` and no accuracy get {agrees}{accuracy:.3}, from `{variant}`\n")
        });
        let figure = match metric.filter(|it| variants::is_error(it)) {
            _ if is_agreement => "agreement with the uploaded file".to_owned(),
            Some(metric) => format!("{metric}, of which less is better,"),
            None => "accuracy".to_owned(),
        };
        format!(
            "{figure} is that of output `{scored}`\n{usual}{}",
            changes.collect::<String>()
        )
    }
}
