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
    /// The number of the version that it is to be; the next one, where this is left out.
    #[schema(minimum = 1)]
    pub(super) version: Option<u32>,
    /// `current` of a version that is to answer as soon as it is ready; `candidate` of one that somebody promotes, as where
    /// this is left out. The first version of a name always answers.
    pub(super) stage: Option<String>,
    /// Under which application; it must exist.
    pub(super) application: String,
    /// Path of the ONNX file in the artefact store, or of an archive with one.
    pub(super) model_path: String,
    /// Path of the validation set (.npz or JSONL) in the artefact store.
    pub(super) validation_path: String,
    /// Paths of the files beside the ONNX file in which its tensors keep their data; they are found by the last
    /// part of the path.
    pub(super) data_paths: Option<Vec<String>>,
    /// Path of the ONNX graph that the metric `custom` is.
    pub(super) metric_path: Option<String>,
    /// The outputs to serve, the one that is scored first; all of them, and the one that the metric is
    /// meant for, where this is left out.
    pub(super) outputs: Option<Vec<String>>,
    /// By input: its value in every query, which queries then do not give, as numbers in row-major order; a
    /// single one fills it.
    pub(super) constants: Option<Constants>,
    /// The names of the classes, in the order of the scored output's columns; those that the file names, where
    /// this is left out.
    pub(super) classes: Option<Vec<String>>,
    /// By input: what it is called here in place of its name in the file. An input whose name the application does not have
    /// is taken for the only one left there of the same type and shape without being named.
    pub(super) input_names: Option<Names>,
    /// The same of outputs.
    pub(super) output_names: Option<Names>,
    /// `none` of a validation set without labels: then agreement with the uploaded file is measured, which is no
    /// accuracy and meets no `min_accuracy`. Such a set is refused without it.
    pub(super) labels: Option<String>,
    /// The input that tells given elements (1) from padding (0): with it, queries of different
    /// lengths share batches.
    pub(super) mask: Option<String>,
    /// By input: the value of padding; 0 where an input is not named.
    pub(super) pad: Option<BTreeMap<String, f64>>,
}

/// A model and its files, as a form.
#[derive(Debug, ToSchema)]
#[schema(as = NewModelForm)]
#[expect(dead_code, reason = "describes the form; its fields are streamed")]
pub struct NewModelForm {
    /// 1 to 128 of `a-z 0-9 - _ .`; best sent first.
    name: String,
    /// The number of the version that it is to be; the next one, where this is left out.
    version: Option<u32>,
    /// `current` of a version that is to answer as soon as it is ready; `candidate` of one that somebody promotes, as where
    /// this is left out. The first version of a name always answers.
    stage: Option<String>,
    /// Under which application; best sent before the files.
    application: String,
    /// The ONNX file, or a zip, tar or gzipped tar of a folder with one and the files beside it.
    #[schema(value_type = String, format = Binary)]
    model: Vec<u8>,
    /// The validation set, .npz or JSONL.
    #[schema(value_type = String, format = Binary)]
    validation: Vec<u8>,
    /// A file beside the ONNX file in which its tensors keep their data, as often as needed; it is found by
    /// the part's file name.
    #[schema(value_type = Option<Vec<String>>, format = Binary)]
    data: Option<Vec<Vec<u8>>>,
    /// The ONNX graph that the metric `custom` is.
    #[schema(value_type = Option<String>, format = Binary)]
    metric_model: Option<Vec<u8>>,
    /// An output to serve, as often as needed, the one that is scored first; all of them, and the one that
    /// the metric is meant for, where this is left out.
    output: Option<Vec<String>>,
    /// `input=value` or `input=value,value,..`, as often as needed: an input's value in every query, which queries
    /// then do not give, as numbers in row-major order; a single one fills it.
    constant: Option<Vec<String>>,
    /// The names of the classes, one in each line, in the order of the scored output's columns; those that the
    /// file names, where this is left out.
    classes: Option<String>,
    /// `OLD=NEW`, as often as needed: what an input is called here in place of its name in the file. An input whose name
    /// the application does not have is taken for the only one left there of the same type and shape without being named.
    input_name: Option<Vec<String>>,
    /// The same of an output.
    output_name: Option<Vec<String>>,
    /// `none` of a validation set without labels: then agreement with the uploaded file is measured, which is no
    /// accuracy and meets no `min_accuracy`. Such a set is refused without it.
    labels: Option<String>,
    /// The input that tells given elements (1) from padding (0): with it, queries of different
    /// lengths share batches.
    mask: Option<String>,
    /// `input=value`, as often as needed: the value of padding; 0 where an input is not named.
    pad: Option<Vec<String>>,
}
