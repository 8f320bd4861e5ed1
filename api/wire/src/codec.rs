//! Tensors on the wire: JSON and the binary extension of the Open Inference Protocol.
//!
//! Reading has two steps and builds no tree: serde finds the bounds of `data` while it checks the
//! syntax; then [`elements`] reads the numbers of the declared type straight into the tensor's
//! bytes. Writing appends to a byte vector. Numbers are written as the shortest decimal that reads
//! back to the same value. JSON has no NaN and no infinities: they are written, and read, as
//! `null`, `"Infinity"` and `"-Infinity"`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use sextant_types::{Code, DataType, NamedTensor, Signature, SignatureMismatch, convert};
use utoipa::ToSchema;

use crate::{json, problem::Problem, room::Reservation};

pub mod binary;
pub mod elements;
pub mod sections;
pub mod write;

/// Most inputs of a query, and most outputs that it may name.
pub const MOST_TENSORS: usize = 4096;

/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 64;

/// Reads the elements of inputs.
pub struct Reader<'a> {
    /// The reservation that is taken for their memory before they are read.
    pub taken: &'a mut Reservation,
    /// The model's signature, if known: strings for an input of numbers are then not read.
    pub signature: Option<&'a Signature>,
}

/// Text that borrows from the body unless it has escapes. (serde never borrows a plain
/// `Option<Cow>`.)
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// One input tensor in JSON.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Tensor)]
pub struct TensorBody<'a> {
    /// Name of the input in the graph.
    #[serde(borrow)]
    #[schema(value_type = String, example = "input")]
    pub name: Cow<'a, str>,
    /// Dimensions.
    #[serde(deserialize_with = "json::at_most::<_, _, MOST_DIMENSIONS>")]
    #[schema(example = json!([1, 64]))]
    pub shape: Vec<usize>,
    /// `BOOL`, `UINT8` .. `UINT64`, `INT8` .. `INT64`, `FP16`, `BF16`, `FP32`, `FP64`, `BYTES`.
    #[serde(borrow)]
    #[schema(value_type = String, example = "FP32")]
    pub datatype: Cow<'a, str>,
    /// Elements in row-major order: flat, or nested as `shape` says.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<serde_json::Value>)]
    pub data: Option<&'a RawValue>,
    /// Open Inference Protocol parameters of this input.
    #[serde(borrow, default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<TensorParameters<'_>>)]
    pub parameters: TensorParameters<'a>,
}

/// Parameters of one tensor; others are ignored.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct TensorParameters<'a> {
    /// Bytes of this tensor after the JSON part of the body.
    pub binary_data_size: Option<usize>,
    /// Whether this output is requested in binary.
    pub binary_data: Option<bool>,
    /// Number of the greatest elements of each row to return of this output, with their positions.
    pub classification: Option<usize>,
    /// The region of shared memory that has this tensor.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub shared_memory_region: Option<Text<'a>>,
    /// Its bytes there.
    pub shared_memory_byte_size: Option<u64>,
    /// Their offset in the region.
    pub shared_memory_offset: Option<u64>,
}

/// A part of a region of shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The region's name.
    pub region: String,
    /// Where the part begins in the region, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub byte_size: u64,
}

// === impl Part ===

impl Part {
    /// The refusal of a region without a length.
    pub fn without_size() -> Problem {
        let detail =
            "`shared_memory_region` needs `shared_memory_byte_size`, the tensor's bytes there";
        Problem::new(Code::InvalidRegion, detail).field("shared_memory_byte_size")
    }
}

// === impl TensorParameters ===

impl TensorParameters<'_> {
    /// The part of shared memory that holds the tensor, if one does.
    pub fn part(&self) -> Result<Option<Part>, Problem> {
        let Some(region) = &self.shared_memory_region else {
            return Ok(None);
        };
        let byte_size = self
            .shared_memory_byte_size
            .ok_or_else(Part::without_size)?;
        Ok(Some(Part {
            region: region.0.as_ref().to_owned(),
            offset: self.shared_memory_offset.unwrap_or(0),
            byte_size,
        }))
    }
}

// === impl TensorBody ===

impl TensorBody<'_> {
    /// The tensor, with its elements in JSON.
    pub fn into_tensor(
        self,
        index: usize,
        reader: &mut Reader<'_>,
    ) -> Result<NamedTensor, Problem> {
        let data_type = self.data_type(index)?;
        let Some(data) = self.data else {
            let detail = format!("input `{}` has no `data`", short(&self.name));
            return Err(Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}]")));
        };
        reader.check(&self.name, data_type)?;
        let most = elements::most_bytes(data_type, &self.shape, data.get());
        reader.taken.grow(most)?;
        let tensor = elements::parse(data_type, self.shape, data.get())
            .map_err(|error| refuse(&self.name, index, &error))?;
        reader.taken.give_back(most - tensor.held_bytes().min(most));
        Ok(NamedTensor::new(self.name, tensor))
    }

    /// The declared element type.
    pub fn data_type(&self, index: usize) -> Result<DataType, Problem> {
        DataType::parse(&self.datatype).ok_or_else(|| {
            let (name, given) = (short(&self.name), short(&self.datatype));
            let known = DataType::ALL.map(DataType::name).join(" ");
            let detail = format!("input `{name}` has datatype `{given}`: use one of `{known}`");
            Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}].datatype"))
        })
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Refuses strings for numbers, and numbers for strings.
    pub fn check(&self, name: &str, given: DataType) -> Result<(), Problem> {
        let inputs = self.signature.iter().flat_map(|it| &it.inputs);
        let mut of_name = inputs.filter(|spec| spec.name == name);
        let texts = |data_type| data_type == DataType::Bytes;
        let spec = of_name.next();
        match spec.filter(|spec| texts(spec.data_type) != texts(given)) {
            None => Ok(()),
            Some(spec) => {
                let mismatch = SignatureMismatch::DataType {
                    name: spec.name.clone(),
                    given,
                    expected: spec.data_type,
                    why: convert::NO_NUMBERS.to_owned(),
                };
                Err(Problem::new(Code::InvalidTensor, mismatch.to_string()))
            }
        }
    }
}

fn refuse(name: &str, index: usize, error: &dyn std::fmt::Display) -> Problem {
    let detail = format!("input `{}`: {error}", short(name));
    Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}].data"))
}

/// The first 64 characters: enough to recognise the text, not enough to flood a log.
pub fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(64) {
        Some((end, _)) => Cow::Owned(format!("{}..", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
