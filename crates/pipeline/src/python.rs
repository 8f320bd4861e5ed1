//! Steps that call functions of Python files.
//!
//! The definition says what a function takes and gives, so a pipeline is checked without running any of its code. An
//! [`Interpreter`] runs the functions: this crate starts no process.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_rpc::QueryError;
use sextant_types::{Code, DataType, Digest, NamedTensor, Signature, TensorSpec};
use sha2::{Digest as _, Sha256};

use crate::{Memory, Part};

/// Most tensors that a function takes, and most that it gives.
const MOST_TENSORS: usize = 64;

/// Most rows of one call.
const MOST_BATCH: u32 = 4096;

/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 8;

/// A function of a Python file: arrays in, arrays out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PythonOptions {
    /// `FILE.py:function`: a path of the artefact store, and a function of the file.
    pub function: String,
    /// Further files of the artefact store, which the function finds as bytes under their paths in `FILES`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The SHA-256 digest of the file; the service refuses a file with another digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Most rows of one call: waiting rows of several queries run in one call. Each tensor that the function
    /// takes or gives has the rows as its first dimension, and the function's result for a row must not
    /// depend on other rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub max_batch: Option<u32>,
    /// What the function takes: each is an argument of this name.
    pub takes: Vec<PythonTensor>,
    /// What it gives, in this order.
    pub gives: Vec<PythonTensor>,
}

/// A tensor that a function takes or gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PythonTensor {
    /// Its name.
    pub name: String,
    /// `FP32`, `INT64`, `BYTES`, .., and not `BF16`.
    #[schemars(with = "String")]
    pub datatype: DataType,
    /// Its dimensions; -1 where any size fits.
    pub shape: Vec<i64>,
}

/// A function that is ready to be called.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The pipeline of the step. Pipelines share nothing, even where their files are the same.
    pub pipeline: String,
    /// The path of its file in the artefact store, for messages.
    pub path: String,
    /// The contents of the file.
    pub file: Bytes,
    /// The files that the function finds beside its own, by path.
    pub files: Vec<(String, Bytes)>,
    /// The digest of all these files.
    pub digest: Digest,
    /// The name of the function in the file.
    pub name: String,
    /// What the function takes and gives. It is batched where rows of several queries may share a call.
    pub signature: Signature,
    /// Most rows of one call, where the function is batched.
    pub max_batch: Option<u32>,
}

/// One call of a function.
pub struct Call {
    /// The inputs.
    pub inputs: Vec<NamedTensor>,
    /// The memory that sending the inputs needs. It is held as long as it may be needed, even if nobody waits any more.
    pub sent: Part,
    /// Counts the memory of the outputs.
    pub memory: Arc<dyn Memory>,
    /// When the call should have ended.
    pub until: Option<Instant>,
}

/// The result of a call.
pub struct CallResult {
    /// The outputs in the order of the signature, checked against it.
    pub outputs: Vec<NamedTensor>,
    /// The memory of the outputs, taken before they were read.
    pub part: Part,
    /// How long the call waited for its turn.
    pub waited: Duration,
    /// Rows of the call, those of other queries included; 0 where a call has one query.
    pub batch_rows: u32,
}

/// Runs functions of Python files.
///
/// A call sees the inputs of one query and of no other, unless the function is batched. Each call is answered once. A
/// function that fails is not called again, unless several queries shared the call: then each query is called alone, so
/// that the fault of one query does not reach the others. A call whose future is dropped may still run to its end.
#[async_trait]
pub trait Interpreter: Send + Sync {
    /// Checks whether functions can be called here at all.
    ///
    /// # Errors
    /// What to do so that they can be called.
    fn state(&self) -> Result<(), QueryError>;

    /// Checks whether this function can be called: runs its file and looks the function up.
    ///
    /// # Errors
    /// Why not, in the words of the interpreter.
    async fn check(&self, function: &Arc<Function>) -> Result<(), QueryError>;

    /// Calls the function.
    ///
    /// # Errors
    /// The exception that the function raised, or what became of its process; outputs that differ from the signature;
    /// missing memory.
    async fn call(&self, function: &Arc<Function>, call: Call) -> Result<CallResult, QueryError>;
}

/// Runs no Python, and says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPython {
    /// Python is not allowed.
    Off,
    /// There is no usable interpreter, for this reason.
    Unusable(String),
}

// === impl PythonOptions ===

impl PythonOptions {
    /// The paths of all files that the function needs, its own first.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let own = self.function.rsplit_once(':');
        let own = own.map_or(self.function.as_str(), |(path, _)| path);
        std::iter::once(own).chain(self.files.iter().map(String::as_str))
    }

    /// The function as a step of the pipeline `name`.
    ///
    /// # Errors
    /// What is wrong with the options, or with the file.
    pub(crate) fn bind(
        &self,
        pipeline: &str,
        known: &BTreeMap<String, Bytes>,
    ) -> Result<Function, String> {
        let split = self.function.rsplit_once(':');
        let (path, name) = split
            .ok_or("is `FILE.py:function`, a path of the artefact store and a name in the file")?;
        if !is_identifier(name) {
            return Err(format!("names `{name}`, which is no name of a function"));
        }
        let of = |path: &str| {
            let file = known.get(path).cloned();
            file.ok_or_else(|| format!("names `{path}`, which is not in the artefact store"))
        };
        let file = of(path)?;
        let own = digest([&file[..]]);
        if let Some(wanted) = self.sha256.as_ref().filter(|it| **it != own.to_string()) {
            return Err(format!(
                "wants the digest `{wanted}`, and `{path}` has `{own}`"
            ));
        }
        let beside = self.files.iter().map(|path| Ok((path.clone(), of(path)?)));
        let files = beside.collect::<Result<Vec<_>, String>>()?;
        let beside = files
            .iter()
            .flat_map(|(path, file)| [path.as_bytes(), &file[..]]);
        let digest = digest(std::iter::once(&file[..]).chain(beside));
        Ok(Function {
            pipeline: pipeline.to_owned(),
            path: path.to_owned(),
            file,
            files,
            digest,
            name: name.to_owned(),
            signature: Signature {
                inputs: specs("takes", &self.takes)?,
                outputs: specs("gives", &self.gives)?,
                batched: self.max_batch.is_some(),
            },
            max_batch: self.checked_batch()?,
        })
    }
}

impl PythonOptions {
    /// Checks the largest batch: each tensor needs rows as its first dimension.
    fn checked_batch(&self) -> Result<Option<u32>, String> {
        let Some(most) = self.max_batch else {
            return Ok(None);
        };
        if !(1..=MOST_BATCH).contains(&most) {
            return Err(format!("has a `max_batch` that is not 1 to {MOST_BATCH}"));
        }
        let mut tensors = self.takes.iter().chain(&self.gives);
        match tensors.find(|it| it.shape.first() != Some(&-1)) {
            Some(tensor) => Err(format!(
                "has a `max_batch`, and `{}` has no rows: the first dimension of each tensor is -1 then",
                tensor.name
            )),
            None => Ok(Some(most)),
        }
    }
}

/// The digest of the parts. Where there are several, each is hashed with its length.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut parts = parts.into_iter().peekable();
    let mut hash = Sha256::new();
    while let Some(part) = parts.next() {
        hash.update(part);
        if parts.peek().is_some() {
            hash.update((part.len() as u64).to_le_bytes());
        }
    }
    Digest::from_bytes(hash.finalize().into())
}

fn specs(key: &str, tensors: &[PythonTensor]) -> Result<Vec<TensorSpec>, String> {
    if tensors.is_empty() || tensors.len() > MOST_TENSORS {
        return Err(format!("has 1 to {MOST_TENSORS} tensors under `{key}`"));
    }
    let mut specs: Vec<TensorSpec> = Vec::with_capacity(tensors.len());
    for PythonTensor {
        name,
        datatype,
        shape,
    } in tensors
    {
        if !is_identifier(name) || specs.iter().any(|other| other.name == *name) {
            return Err(format!(
                "has `{name}` under `{key}`, which is no name of an argument, or there twice"
            ));
        }
        if shape.len() > MOST_DIMENSIONS || shape.iter().any(|size| *size < -1) {
            return Err(format!(
                "has for `{name}` a shape of more than 8 sizes, or one below -1"
            ));
        }
        if *datatype == DataType::Bf16 {
            return Err(format!(
                "has `{name}` as BF16, which NumPy does not know: take FP32"
            ));
        }
        specs.push(TensorSpec {
            name: name.clone(),
            data_type: *datatype,
            shape: shape.iter().map(|size| u64::try_from(*size).ok()).collect(),
        });
    }
    Ok(specs)
}

/// Whether Python accepts the text as a name. Only ASCII names count.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|it| it.is_ascii_alphabetic() || it == '_');
    begins && name.len() <= 64 && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

// === impl NoPython ===

#[async_trait]
impl Interpreter for NoPython {
    fn state(&self) -> Result<(), QueryError> {
        Err(match self {
            Self::Off => {
                let message = "steps in Python are off here: set `pipelines.python.enabled` once you have read what \
                               docs/security.md says of them";
                QueryError::new(Code::InvalidPipeline, message)
            }
            Self::Unusable(why) => QueryError::new(
                Code::Unavailable,
                format!("steps in Python cannot run here: {why}"),
            ),
        })
    }

    async fn check(&self, _: &Arc<Function>) -> Result<(), QueryError> {
        self.state()
    }

    async fn call(&self, _: &Arc<Function>, _: Call) -> Result<CallResult, QueryError> {
        Err(self
            .state()
            .err()
            .unwrap_or_else(|| QueryError::new(Code::Unavailable, "there is no Python")))
    }
}
