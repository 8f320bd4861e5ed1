//! Parts of a model's document.

use std::collections::BTreeMap;

use serde::Serialize;
use sextant_registry::{DataFile, Failure, Registrant};
use utoipa::ToSchema;

/// A file beside an ONNX file that has the data of tensors.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DataFile)]
pub struct DataFileBody {
    /// Its name.
    name: String,
    /// SHA-256 of its content.
    digest: String,
    /// Its size, bytes.
    size_bytes: u64,
}

impl From<DataFile> for DataFileBody {
    fn from(file: DataFile) -> Self {
        Self {
            name: file.name,
            digest: file.digest.to_string(),
            size_bytes: file.size_bytes,
        }
    }
}

/// How inputs are padded, so that queries of different lengths share batches.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Padding)]
pub struct PaddingBody {
    /// The input that is 1 for given elements and 0 for padding.
    pub(super) mask: String,
    /// By input: the value with which it is padded; 0 for inputs that are not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) pad: BTreeMap<String, f64>,
}

/// Why a registration or a job failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub struct FailureBody {
    /// Stable code; its page is `/docs/errors/{code}`.
    code: &'static str,
    /// What happened and what to do.
    message: String,
}

impl From<Failure> for FailureBody {
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.code.as_str(),
            message: failure.message,
        }
    }
}

/// Who registered a model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Registrant)]
pub struct RegistrantBody {
    /// The id of a key, `administrator`, or `anonymous` if the service needs no keys, as in the audit record.
    name: String,
    /// Whether the key allows everything. Models of other keys run in separate processes if the workers or
    /// the application say so.
    administrator: bool,
}

impl From<Registrant> for RegistrantBody {
    fn from(registrant: Registrant) -> Self {
        Self {
            name: registrant.name,
            administrator: registrant.is_administrator,
        }
    }
}
