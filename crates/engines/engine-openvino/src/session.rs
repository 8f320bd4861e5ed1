//! One way to run a model, on one thread at a time.

use openvino::{
    CompiledModel, Core, DeviceType, InferRequest, InferenceError, RwPropertyKey, Shape,
};
use sextant_engine::Error;
use sextant_types::{Data, NamedTensor, Precision, Signature, Tensor, TensorSpec};

use crate::{failure, model::ParsedModel, tensors};

/// Largest input with which a model is warmed up, bytes: the file declares the size, so it cannot be trusted.
const MOST_WARM_BYTES: usize = 64 << 20;

/// Longest time that the library waits for a run: a day.
const LONGEST_RUN_MS: i64 = 24 * 60 * 60 * 1000;

/// Operators whose results have sizes that follow from the sizes of their inputs, whatever the values are: only the
/// sizes of inputs can make a run of such a model fail.
const BY_SIZES: [&str; 42] = [
    "Abs",
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Flatten",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "MatMul",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Neg",
    "PRelu",
    "Pow",
    "QuantizeLinear",
    "Relu",
    "Sigmoid",
    "Softmax",
    "Sqrt",
    "Sub",
    "Tanh",
];

/// Whether all operators of a model are in that list.
pub(crate) fn runs_by_sizes(operators: &[String]) -> bool {
    let known = |operator: &String| BY_SIZES.contains(&operator.as_str());
    operators.iter().all(known)
}

pub(crate) struct Session {
    request: InferRequest,
    /// Whether only the sizes of inputs can make a run fail.
    by_sizes: bool,
    /// Whether inputs of the present sizes were run without an error.
    has_run: bool,
    /// The inputs of the last run, in the signature's order: a run with the same sizes overwrites them.
    inputs: Vec<Option<BoundTensor>>,
}

/// A tensor that the request reads.
struct BoundTensor {
    shape: Vec<usize>,
    tensor: openvino::Tensor,
}

impl Session {
    /// Prepares a parsed model, and runs one row of zeros if its sizes are fixed: OpenVINO reorders the weights for its
    /// kernels at the first run.
    pub(crate) fn open(
        read: &ParsedModel,
        precision: Precision,
        threads: u16,
    ) -> Result<Self, Error> {
        let mut core = Core::new().map_err(|error| Error::Failed(error.to_string()))?;
        let threads = threads.to_string();
        let properties = [
            (RwPropertyKey::NumStreams, "1"),
            (RwPropertyKey::InferenceNumThreads, threads.as_str()),
            (RwPropertyKey::HintInferencePrecision, element(precision)),
            // The worker decides where threads run.
            (RwPropertyKey::HintEnableCpuPinning, "NO"),
        ];
        let set = core.set_properties(&DeviceType::CPU, properties);
        set.map_err(|error| failure::load(&error))?;
        let compiled = core.compile_model(&read.model.lock(), DeviceType::CPU);
        let mut compiled = compiled.map_err(|error| failure::load(&error))?;
        check_names(&read.signature, &compiled)?;
        let request = compiled.create_infer_request();
        let mut session = Self {
            request: request.map_err(|error| failure::load(&error))?,
            by_sizes: read.by_sizes,
            has_run: false,
            inputs: read.signature.inputs.iter().map(|_| None).collect(),
        };
        if let Some(zeros) = zeros(&read.signature) {
            session.run(&zeros, &read.signature.outputs)?;
        }
        Ok(session)
    }

    /// Runs a batch; `outputs` are those of the signature.
    pub(crate) fn run(
        &mut self,
        inputs: &[NamedTensor],
        outputs: &[TensorSpec],
    ) -> Result<Vec<Tensor>, Error> {
        for (at, input) in inputs.iter().enumerate() {
            self.write(at, input)?;
        }
        self.infer().map_err(|error| failure::run(&error))?;
        let read = |spec: &TensorSpec| {
            let tensor = self.request.get_tensor(&spec.name);
            tensors::output(spec, &tensor.map_err(|error| failure::run(&error))?)
        };
        outputs.iter().map(read).collect()
    }

    /// `InferRequest::infer` reports no error for a run that fails on one thread, for example because sizes do not fit,
    /// and leaves the outputs of the run before. It wakes no other thread, so it is used if nothing can fail any more.
    fn infer(&mut self) -> Result<(), InferenceError> {
        if self.by_sizes && self.has_run {
            return self.request.infer();
        }
        self.request.infer_async()?;
        self.request.wait(LONGEST_RUN_MS)?;
        self.has_run = true;
        Ok(())
    }

    /// Passes an input to the request.
    fn write(&mut self, at: usize, input: &NamedTensor) -> Result<(), Error> {
        let Data::Plain(bytes) = input.tensor.data() else {
            return Err(tensors::invalid(input, "strings are not supported"));
        };
        let held = self.inputs.get_mut(at);
        let held = held.ok_or_else(|| tensors::invalid(input, "the model has no such input"))?;
        let fits = |held: &&mut BoundTensor| held.shape == input.tensor.shape();
        if let Some(held) = held.as_mut().filter(fits) {
            return tensors::fill(&mut held.tensor, bytes);
        }
        self.has_run = false;
        let mut tensor = tensor(input)?;
        tensors::fill(&mut tensor, bytes)?;
        let set = self.request.set_tensor(&input.name, &tensor);
        set.map_err(|error| failure::run(&error))?;
        *held = Some(BoundTensor {
            shape: input.tensor.shape().to_vec(),
            tensor,
        });
        Ok(())
    }
}

/// OpenVINO's word for the type that a precision computes in. Models in 8 bits say so in their file; the rest of them
/// is computed in 32 bits.
fn element(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "f16",
        Precision::Fp32
        | Precision::Tf32
        | Precision::Int8Dynamic
        | Precision::Int8Static
        | Precision::Int8Weights
        | Precision::Int4Weights => "f32",
    }
}

/// Inputs and outputs are passed by name.
fn check_names(signature: &Signature, compiled: &CompiledModel) -> Result<(), Error> {
    let is_input = |spec: &&TensorSpec| compiled.get_input_by_name(&spec.name).is_err();
    let is_output = |spec: &&TensorSpec| compiled.get_output_by_name(&spec.name).is_err();
    let lost = signature.inputs.iter().find(is_input);
    match lost.or_else(|| signature.outputs.iter().find(is_output)) {
        Some(spec) => Err(Error::Unsupported(format!(
            "`{}` is no longer there when the graph has been prepared",
            spec.name
        ))),
        None => Ok(()),
    }
}

/// A tensor of the input's type and sizes.
fn tensor(input: &NamedTensor) -> Result<openvino::Tensor, Error> {
    let failed = |error| failure::run(&error);
    let dims: Option<Vec<i64>> = input
        .tensor
        .shape()
        .iter()
        .map(|dim| (*dim).try_into().ok())
        .collect();
    let dims = dims.ok_or_else(|| tensors::invalid(input, "it is too large"))?;
    let shape = Shape::new(&dims).map_err(failed)?;
    let element = tensors::element(input.tensor.data_type());
    let element = element.ok_or_else(|| tensors::invalid(input, "its type is not supported"))?;
    openvino::Tensor::new(element, &shape).map_err(failed)
}

/// One row of zeros; `None` if a size other than the batch is not fixed.
fn zeros(signature: &Signature) -> Option<Vec<NamedTensor>> {
    let zeros = |spec: &TensorSpec| {
        let dims = spec.shape.iter().enumerate();
        let dims = dims.map(|(at, dim)| match (dim, at) {
            (Some(size), _) => usize::try_from(*size).ok(),
            (None, 0) if signature.batched => Some(1),
            (None, _) => None,
        });
        let shape = dims.collect::<Option<Vec<usize>>>()?;
        let size = spec.data_type.size()?;
        let bytes = shape
            .iter()
            .try_fold(size, |bytes, dim| bytes.checked_mul(*dim))?;
        if bytes > MOST_WARM_BYTES {
            return None;
        }
        let tensor = Tensor::from_bytes(spec.data_type, shape, vec![0; bytes].into()).ok()?;
        Some(NamedTensor::new(spec.name.clone(), tensor))
    };
    signature.inputs.iter().map(zeros).collect()
}
