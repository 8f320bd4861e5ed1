//! A server's descriptions of itself and of its models.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sextant_engine::Error;
use sextant_types::{DataType, Signature, TensorSpec};

use crate::{manifest::Manifest, text::shorten};

/// Most inputs and most outputs of a model.
const MAX_TENSORS: usize = 1024;

/// Most dimensions of a tensor.
const MAX_RANK: usize = 32;

/// Longest name of a tensor, bytes.
const MAX_NAME_BYTES: usize = 1024;

/// A model as its server describes it; checked by [`ModelMetadata::signature`].
#[derive(Debug, Deserialize)]
pub(crate) struct ModelMetadata {
    #[serde(default)]
    inputs: Vec<TensorDescription>,
    #[serde(default)]
    outputs: Vec<TensorDescription>,
}

/// An input or output, as a server or a manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorDeclaration {
    /// Its name.
    pub name: String,
    /// Its type in the protocol's words: `FP32`, `INT64`, `BYTES`, ..
    pub datatype: String,
    /// Its dimensions; -1 is any size.
    pub shape: Vec<i64>,
}

/// Other members of a server's description are ignored.
#[derive(Debug, Deserialize)]
struct TensorDescription {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// The extensions that a server announces; none if the answer cannot be read.
pub(crate) fn extensions(json: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Server {
        #[serde(default)]
        extensions: Vec<String>,
    }
    let server = serde_json::from_slice::<Server>(json);
    server.map_or_else(|_| Vec::new(), |server| server.extensions)
}

pub(crate) fn read(json: &[u8]) -> Result<ModelMetadata, String> {
    serde_json::from_slice(json).map_err(|error| {
        format!(
            "its metadata cannot be read: {}",
            shorten(&error.to_string())
        )
    })
}

impl From<&TensorDeclaration> for TensorDescription {
    fn from(declared: &TensorDeclaration) -> Self {
        Self {
            name: declared.name.clone(),
            datatype: declared.datatype.clone(),
            shape: declared.shape.clone(),
        }
    }
}

// === impl ModelMetadata ===

impl ModelMetadata {
    /// The manifest's declaration, which replaces the server's description; `None` if it declares nothing.
    pub(crate) fn declared(manifest: &Manifest) -> Option<Self> {
        let all = |of: &[TensorDeclaration]| of.iter().map(TensorDescription::from).collect();
        (!manifest.inputs.is_empty()).then(|| Self {
            inputs: all(&manifest.inputs),
            outputs: all(&manifest.outputs),
        })
    }

    /// Inputs and outputs. A model counts as batched if the first dimension of each of them is dynamic, unless the
    /// manifest says that it is not a batch.
    pub(crate) fn signature(&self, manifest: &Manifest) -> Result<Signature, Error> {
        let inputs = specs("input", &self.inputs)?;
        let outputs = specs("output", &self.outputs)?;
        let mut all = inputs.iter().chain(&outputs);
        let batched = all.all(|spec| spec.shape.first() == Some(&None));
        Ok(Signature {
            batched: batched && manifest.allows_batches(),
            inputs,
            outputs,
        })
    }
}

fn specs(direction: &str, described: &[TensorDescription]) -> Result<Vec<TensorSpec>, Error> {
    if described.is_empty() || described.len() > MAX_TENSORS {
        let count = described.len();
        return Err(invalid(&format!(
            "it has {count} {direction}s, 1 to {MAX_TENSORS} are possible: declare them by `inputs` and `outputs` of \
             the manifest"
        )));
    }
    let mut names = BTreeSet::new();
    let twice = described.iter().find(|it| !names.insert(it.name.as_str()));
    if let Some(twice) = twice {
        let name = shorten(&twice.name);
        return Err(invalid(&format!("{direction} `{name}` is there twice")));
    }
    described.iter().map(|it| it.spec(direction)).collect()
}

fn invalid(reason: &str) -> Error {
    Error::InvalidModel(format!(
        "what the runtime, or the manifest in its place, says of the model: {reason}"
    ))
}

// === impl TensorDescription ===

impl TensorDescription {
    fn spec(&self, direction: &str) -> Result<TensorSpec, Error> {
        let name = shorten(&self.name);
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES {
            return Err(invalid(&format!("an {direction} has the name `{name}`")));
        }
        let data_type = DataType::parse(&self.datatype).ok_or_else(|| {
            let datatype = shorten(&self.datatype);
            Error::Unsupported(format!("{direction} `{name}` is of type `{datatype}`"))
        })?;
        if self.shape.len() > MAX_RANK {
            return Err(invalid(&format!(
                "{direction} `{name}` has too many dimensions"
            )));
        }
        let size = |size: &i64| match size {
            -1 => Ok(None),
            size => u64::try_from(*size)
                .map(Some)
                .map_err(|_| invalid(&format!("a dimension of {direction} `{name}` is {size}"))),
        };
        Ok(TensorSpec {
            name: self.name.clone(),
            data_type,
            shape: self.shape.iter().map(size).collect::<Result<_, _>>()?,
        })
    }
}
