//! The request of a registration: paths in the artefact store, or a form with the files.

use std::collections::BTreeMap;

use serde::Deserialize;
use sextant_types::{Constants, Names};
use utoipa::ToSchema;

/// Where a model's files lie in the artefact store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewModel)]
pub struct NewModelBody {
    /// 1 to 128 of `a-z 0-9 - _ .`.
    pub(super) name: String,
    /// The number of the new version; if it is left out, the next number.
    #[schema(minimum = 1)]
    pub(super) version: Option<u32>,
    /// `current` for a version that answers as soon as it is ready; `candidate`, which is the default, for a
    /// version that somebody promotes later. The first version of a name always becomes current.
    pub(super) stage: Option<String>,
    /// The application under which it is registered; it must exist.
    pub(super) application: String,
    /// Path of the ONNX file in the artefact store, or of an archive with one.
    pub(super) model_path: String,
    /// Path of the validation set (.npz or JSONL) in the artefact store.
    pub(super) validation_path: String,
    /// Paths of the files beside the ONNX file that have the data of its tensors; the service finds each by
    /// the last part of its path.
    pub(super) data_paths: Option<Vec<String>>,
    /// Path of the ONNX graph that computes the metric `custom`.
    pub(super) metric_path: Option<String>,
    /// The outputs to serve, with the scored output first. If it is left out, the service serves all outputs
    /// and scores the one that suits the metric.
    pub(super) outputs: Option<Vec<String>>,
    /// By input: the value of the input in every query, as numbers in row-major order; a single number fills
    /// the input. Queries then do not have this input.
    pub(super) constants: Option<Constants>,
    /// The names of the classes, in the order of the scored output's columns; if it is left out, those that
    /// the file names.
    pub(super) classes: Option<Vec<String>>,
    /// By input: a new name for an input of the file. If the application has no input of that name, and the
    /// input is not named here, the input is matched with the only remaining one of the same type and shape.
    pub(super) input_names: Option<Names>,
    /// The same for outputs.
    pub(super) output_names: Option<Names>,
    /// `none` for a validation set without labels: the service then measures agreement with the uploaded
    /// file, which is no accuracy and does not count for `min_accuracy`. Without it, the service refuses such
    /// a set.
    pub(super) labels: Option<String>,
    /// The input that is 1 for given elements and 0 for padding. With it, queries of different lengths share batches.
    pub(super) mask: Option<String>,
    /// By input: the value with which it is padded; 0 for inputs that are not named.
    pub(super) pad: Option<BTreeMap<String, f64>>,
}

/// A model and its files, as a form.
#[derive(Debug, ToSchema)]
#[schema(as = NewModelForm)]
#[expect(dead_code, reason = "describes the form; its fields are streamed")]
pub struct NewModelForm {
    /// 1 to 128 of `a-z 0-9 - _ .`; send this field first if possible.
    name: String,
    /// The number of the new version; if it is left out, the next number.
    version: Option<u32>,
    /// `current` for a version that answers as soon as it is ready; `candidate`, which is the default, for a
    /// version that somebody promotes later. The first version of a name always becomes current.
    stage: Option<String>,
    /// The application under which it is registered; send this field before the files if possible.
    application: String,
    /// The ONNX file, or a zip, tar or gzipped tar of a folder with one and the files beside it.
    #[schema(value_type = String, format = Binary)]
    model: Vec<u8>,
    /// The validation set, .npz or JSONL.
    #[schema(value_type = String, format = Binary)]
    validation: Vec<u8>,
    /// A file beside the ONNX file that has the data of its tensors; the part may be repeated. The service
    /// finds the file by the part's file name.
    #[schema(value_type = Option<Vec<String>>, format = Binary)]
    data: Option<Vec<Vec<u8>>>,
    /// The ONNX graph that computes the metric `custom`.
    #[schema(value_type = Option<String>, format = Binary)]
    metric_model: Option<Vec<u8>>,
    /// An output to serve; the part may be repeated, with the scored output first. If it is left out, the
    /// service serves all outputs and scores the one that suits the metric.
    output: Option<Vec<String>>,
    /// `input=value` or `input=value,value,..`: the value of an input in every query, as numbers in row-major
    /// order; a single number fills the input. Queries then do not have this input. The part may be repeated.
    constant: Option<Vec<String>>,
    /// The names of the classes, one in each line, in the order of the scored output's columns; if it is left
    /// out, those that the file names.
    classes: Option<String>,
    /// `OLD=NEW`: a new name for an input of the file; the part may be repeated. If the application has no
    /// input of that name, and the input is not named here, the input is matched with the only remaining one
    /// of the same type and shape.
    input_name: Option<Vec<String>>,
    /// The same for an output.
    output_name: Option<Vec<String>>,
    /// `none` for a validation set without labels: the service then measures agreement with the uploaded
    /// file, which is no accuracy and does not count for `min_accuracy`. Without it, the service refuses such
    /// a set.
    labels: Option<String>,
    /// The input that is 1 for given elements and 0 for padding. With it, queries of different lengths share batches.
    mask: Option<String>,
    /// `input=value`: the value with which the input is padded; 0 for inputs that are not named. The part may
    /// be repeated.
    pad: Option<Vec<String>>,
}
