//! Tensors in gRPC messages: single elements in typed fields, or all bytes of a tensor in one entry.

use bytes::Bytes;
use sextant_types::{Code, Data, DataType, Element, InvalidTensor, NamedTensor, Tensor};

use super::{
    contents::{self, Contents},
    frame::{Value, fields},
    parameters::{self, Parameters},
    proto,
};
use crate::{
    codec::{Part, Reader, binary, short},
    problem::Problem,
    room::Reservation,
    selection::{Output, SelectedOutput, Selection},
};

/// Bytes of memory that a field takes when it has been read, about: a parameter in a map.
const FIELD_BYTES: usize = 256;

/// An input of a request.
type Input = proto::model_infer_request::InferInputTensor;

/// The inputs of a request: from shared memory, which `regions` reads, or from the entries of `raw` if there are any,
/// or else from typed fields.
pub fn inputs(
    inputs: Vec<Input>,
    raw: Vec<Bytes>,
    reader: &mut Reader<'_>,
    regions: impl Fn(&mut Reservation, &Part) -> Result<Bytes, Problem>,
) -> Result<Vec<NamedTensor>, Problem> {
    let parts = inputs
        .iter()
        .map(|input| Parameters(&input.parameters).part());
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let sent = parts.iter().filter(|part| part.is_none()).count();
    if !raw.is_empty() && raw.len() != sent {
        let detail = format!(
            "`raw_input_contents` has `{}` entries for `{sent}` inputs that are not in shared memory: give one \
             for each of these, or none at all",
            raw.len(),
        );
        return Err(Problem::new(Code::InvalidTensor, detail).field("raw_input_contents"));
    }
    let mut raw = raw.into_iter();
    let mut read = |((index, input), part): ((usize, Input), Option<Part>)| {
        let refuse = |reason: String| {
            let detail = format!("input `{}`: {reason}", short(&input.name));
            Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}]"))
        };
        let data_type = data_type(&input.datatype).map_err(refuse)?;
        let shape = shape(&input.shape).map_err(refuse)?;
        reader.check(&input.name, data_type)?;
        let sent = match &part {
            Some(part) => Some(regions(reader.taken, part)?),
            None => raw.next(),
        };
        if let Some(bytes) = &sent {
            let most = binary::most_bytes(data_type, bytes.len());
            reader.taken.grow(most)?;
        }
        let tensor = match (sent, input.contents) {
            (Some(_), Some(_)) => {
                Err("its elements are in `contents` and elsewhere, too".to_owned())
            }
            (Some(bytes), None) => {
                binary::parse(data_type, shape, bytes).map_err(|error| error.to_string())
            }
            (None, contents) => typed(data_type, shape, contents.unwrap_or_default()),
        };
        let tensor = tensor.map_err(|reason| {
            let detail = format!("input `{}`: {reason}", short(&input.name));
            Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}]"))
        })?;
        Ok(NamedTensor::new(input.name, tensor))
    };
    let inputs = inputs.into_iter().enumerate();
    inputs.zip(parts).map(&mut read).collect()
}

/// Most bytes of memory that a `ModelInferRequest` takes when it is read.
pub fn most_bytes(request: &[u8]) -> usize {
    let of_input = |(number, value): (u64, Value<'_>)| match (number, value) {
        (3, Value::Bytes(shape)) => 8 * shape.len(),
        (5, Value::Bytes(message)) => contents::most_bytes(message),
        _ => FIELD_BYTES,
    };
    let of_request = |(number, value): (u64, Value<'_>)| match (number, value) {
        (5 | 6, Value::Bytes(tensor)) => FIELD_BYTES + fields(tensor).map(of_input).sum::<usize>(),
        _ => FIELD_BYTES,
    };
    fields(request).map(of_request).sum()
}

/// The outputs of an answer, and their bytes if not all of them are in typed fields.
pub fn outputs(
    outputs: Vec<Output>,
    is_typed: bool,
) -> (
    Vec<proto::model_infer_response::InferOutputTensor>,
    Vec<Bytes>,
) {
    let has_field =
        |output: &Output| output.part.is_none() && !is_half(output.named.tensor.data_type());
    let is_typed = is_typed && outputs.iter().all(has_field);
    let mut raw = Vec::new();
    let output = |Output { named, part, .. }: Output| {
        let tensor = named.tensor;
        let contents = is_typed.then(|| contents(&tensor));
        match (&part, is_typed) {
            // Clients find the entry of an output by the output's position.
            (Some(_), _) => raw.push(Bytes::new()),
            (None, false) => raw.push(binary::bytes(&tensor)),
            (None, true) => {}
        }
        proto::model_infer_response::InferOutputTensor {
            name: named.name,
            datatype: tensor.data_type().name().to_owned(),
            shape: tensor.shape().iter().map(|size| *size as i64).collect(),
            parameters: part.as_ref().map(parameters::of_part).unwrap_or_default(),
            contents,
        }
    };
    let outputs = outputs.into_iter().map(output).collect();
    (outputs, raw)
}

fn data_type(name: &str) -> Result<DataType, String> {
    DataType::parse(name).ok_or_else(|| {
        let known = DataType::ALL.map(DataType::name).join(" ");
        format!("its datatype is `{}`: use one of `{known}`", short(name))
    })
}

fn shape(sizes: &[i64]) -> Result<Vec<usize>, String> {
    let size = |size: &i64| usize::try_from(*size).ok();
    let shape: Option<Vec<usize>> = sizes.iter().map(size).collect();
    shape.ok_or_else(|| format!("its shape is {sizes:?}: sizes are 0 or more"))
}

/// Whether a type has no typed field.
fn is_half(data_type: DataType) -> bool {
    matches!(data_type, DataType::Fp16 | DataType::Bf16)
}

/// A tensor from its typed field; the fields of other types must be empty.
fn typed(data_type: DataType, shape: Vec<usize>, contents: Contents) -> Result<Tensor, String> {
    let Some(field) = field(data_type) else {
        return Err(format!(
            "{data_type} has no typed field: send its bytes in `raw_input_contents`"
        ));
    };
    let given = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    if let Some((other, _)) = given
        .iter()
        .find(|(name, count)| *name != field && *count > 0)
    {
        return Err(format!(
            "elements of type {data_type} belong into `{field}`, not into `{other}`"
        ));
    }
    let whole = |error: InvalidTensor| error.to_string();
    match data_type {
        DataType::Bool => {
            let bytes = contents.bool_contents.into_iter().map(u8::from).collect();
            Tensor::from_bytes(data_type, shape, bytes).map_err(whole)
        }
        DataType::Uint8 => narrow::<_, u8>(shape, &contents.uint_contents),
        DataType::Uint16 => narrow::<_, u16>(shape, &contents.uint_contents),
        DataType::Uint32 => Tensor::from_elements(shape, &contents.uint_contents).map_err(whole),
        DataType::Uint64 => Tensor::from_elements(shape, &contents.uint64_contents).map_err(whole),
        DataType::Int8 => narrow::<_, i8>(shape, &contents.int_contents),
        DataType::Int16 => narrow::<_, i16>(shape, &contents.int_contents),
        DataType::Int32 => Tensor::from_elements(shape, &contents.int_contents).map_err(whole),
        DataType::Int64 => Tensor::from_elements(shape, &contents.int64_contents).map_err(whole),
        DataType::Fp32 => Tensor::from_elements(shape, &contents.fp32_contents).map_err(whole),
        DataType::Fp64 => Tensor::from_elements(shape, &contents.fp64_contents).map_err(whole),
        DataType::Bytes => {
            Tensor::from_texts(shape, contents.bytes_contents.finish()).map_err(whole)
        }
        DataType::Fp16 | DataType::Bf16 => Err(format!("{data_type} has no typed field")),
    }
}

/// The field for elements of a type.
fn field(data_type: DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Bool => "bool_contents",
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => "uint_contents",
        DataType::Uint64 => "uint64_contents",
        DataType::Int8 | DataType::Int16 | DataType::Int32 => "int_contents",
        DataType::Int64 => "int64_contents",
        DataType::Fp32 => "fp32_contents",
        DataType::Fp64 => "fp64_contents",
        DataType::Bytes => "bytes_contents",
        DataType::Fp16 | DataType::Bf16 => return None,
    })
}

/// A tensor whose elements are sent in a wider type.
fn narrow<W, N>(shape: Vec<usize>, values: &[W]) -> Result<Tensor, String>
where
    W: Copy + std::fmt::Display,
    N: Element + TryFrom<W>,
{
    let mut narrowed = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let narrow = N::try_from(*value).map_err(|_| {
            let data_type = N::DATA_TYPE;
            format!("element {index} is `{value}`, not a value of type {data_type}")
        })?;
        narrowed.push(narrow);
    }
    Tensor::from_elements(shape, &narrowed).map_err(|error| error.to_string())
}

/// A tensor in its typed field.
fn contents(tensor: &Tensor) -> Contents {
    fn all<T: Element>(tensor: &Tensor) -> Vec<T> {
        tensor.to_vec().unwrap_or_default()
    }
    fn wide<N: Element + Into<W>, W>(tensor: &Tensor) -> Vec<W> {
        all::<N>(tensor).into_iter().map(Into::into).collect()
    }
    let mut contents = Contents::default();
    match (tensor.data_type(), tensor.data()) {
        (DataType::Bool, Data::Plain(bytes)) => {
            contents.bool_contents = bytes.iter().map(|byte| *byte != 0).collect();
        }
        (DataType::Uint8, _) => contents.uint_contents = wide::<u8, _>(tensor),
        (DataType::Uint16, _) => contents.uint_contents = wide::<u16, _>(tensor),
        (DataType::Uint32, _) => contents.uint_contents = all(tensor),
        (DataType::Uint64, _) => contents.uint64_contents = all(tensor),
        (DataType::Int8, _) => contents.int_contents = wide::<i8, _>(tensor),
        (DataType::Int16, _) => contents.int_contents = wide::<i16, _>(tensor),
        (DataType::Int32, _) => contents.int_contents = all(tensor),
        (DataType::Int64, _) => contents.int64_contents = all(tensor),
        (DataType::Fp32, _) => contents.fp32_contents = all(tensor),
        (DataType::Fp64, _) => contents.fp64_contents = all(tensor),
        (DataType::Bytes, Data::Strings(texts)) => {
            // The texts were a tensor, and take as many bytes here.
            contents.bytes_contents.extend(texts).unwrap_or_default();
        }
        // No caller asks for these types: they have no field.
        _ => {}
    }
    contents
}

/// The outputs that a request asks for.
pub fn selection(
    outputs: &[proto::model_infer_request::InferRequestedOutputTensor],
) -> Result<Selection, Problem> {
    let wanted = outputs.iter().map(|output| {
        Ok(SelectedOutput {
            name: output.name.clone(),
            binary: None,
            classes: Parameters(&output.parameters).classes()?,
            part: Parameters(&output.parameters).part()?,
        })
    });
    Ok(Selection {
        wanted: wanted.collect::<Result<_, Problem>>()?,
        binary: true,
    })
}
