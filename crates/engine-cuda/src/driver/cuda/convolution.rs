//! Convolutions with cuDNN.
//!
//! The algorithm is the first of cuDNN's list for the shapes that fits the scratch memory; it is asked
//! once, when an operation is prepared. Bias and ReLU go into the same call where cuDNN can.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
};

use cudarc::{
    cudnn::{result, result::CudnnError, sys},
    driver::CudaStream,
};
use sextant_engine::Error;

use super::{errors::dnn_error, memory::Memory};
use crate::operation::{Activation, Address, Arithmetic, Convolution, Element};

/// Algorithms that cuDNN is asked to rank.
const ALGORITHMS: usize = 8;

/// cuDNN and what it chose.
pub(super) struct Convolutions {
    state: Mutex<State>,
}

struct State {
    handle: sys::cudnnHandle_t,
    relu: sys::cudnnActivationDescriptor_t,
    plans: HashMap<Key, Plan>,
}

/// What a plan depends on: everything but addresses.
type Key = [u64; 21];

struct Plan {
    descriptors: Descriptors,
    algorithm: sys::cudnnConvolutionFwdAlgo_t,
    workspace_bytes: usize,
    /// Whether bias and ReLU may go into the call; false once cuDNN refused it.
    fused: bool,
}

struct Descriptors {
    x: sys::cudnnTensorDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    bias: sys::cudnnTensorDescriptor_t,
    weights: sys::cudnnFilterDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
}

// SAFETY: cuDNN's handle and descriptors may be used by any thread as long as one at a time does; they
// are reached through the mutex.
unsafe impl Send for State {}

// === impl Convolutions ===

impl Convolutions {
    /// The context is current.
    pub(super) fn new() -> Result<Self, Error> {
        let relu = result::create_activation_descriptor().map_err(dnn_error)?;
        // SAFETY: the descriptor was just made.
        unsafe {
            result::set_activation_descriptor(
                relu,
                sys::cudnnActivationMode_t::CUDNN_ACTIVATION_RELU,
                sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN,
                0.0,
            )
        }
        .map_err(dnn_error)?;
        let state = State {
            handle: result::create_handle().map_err(dnn_error)?,
            relu,
            plans: HashMap::new(),
        };
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    pub(super) fn version(&self) -> usize {
        result::get_version()
    }

    /// Chooses an algorithm.
    pub(super) fn prepare(&self, memory: &Memory, it: &Convolution) -> Result<(), Error> {
        if it.window.pads_begin != it.window.pads_end {
            return Err(Error::Unsupported(
                "cuDNN pads both sides of an image alike".to_owned(),
            ));
        }
        let mut state = self.state();
        let key = key(it);
        if !state.plans.contains_key(&key) {
            let plan = Plan::new(state.handle, memory, it)?;
            state.plans.insert(key, plan);
        }
        Ok(())
    }

    /// Puts a prepared convolution into a stream of the bound context. `false` where bias and
    /// activation are left to do.
    pub(super) fn launch(
        &self,
        stream: &CudaStream,
        memory: &Memory,
        it: &Convolution,
    ) -> Result<bool, Error> {
        let mut state = self.state();
        let State {
            handle,
            relu,
            plans,
        } = &mut *state;
        // SAFETY: handle and stream are alive.
        unsafe { result::set_stream(*handle, stream.cu_stream().cast()) }.map_err(dnn_error)?;
        let unprepared = || Error::Failed("a convolution was not prepared".to_owned());
        let plan = plans.get_mut(&key(it)).ok_or_else(unprepared)?;
        if let (true, Some(bias), Activation::Relu) = (plan.fused, it.bias, it.activation) {
            match plan.launch_fused(*handle, *relu, memory, it, bias) {
                Err(CudnnError(
                    sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED
                    | sys::cudnnStatus_t::CUDNN_STATUS_BAD_PARAM,
                )) => plan.fused = false,
                launched => return launched.map(|()| true).map_err(dnn_error),
            }
        }
        plan.launch(*handle, memory, it).map_err(dnn_error)?;
        Ok(it.bias.is_none() && it.activation == Activation::None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: both were made in `Convolutions::new` and are destroyed once.
        unsafe {
            let _leaked = sys::cudnnDestroyActivationDescriptor(self.relu);
            let _leaked = result::destroy_handle(self.handle);
        }
    }
}

fn key(it: &Convolution) -> Key {
    let window = [
        it.window.in_size,
        it.window.out_size,
        it.window.kernel,
        it.window.strides,
        it.window.dilations,
        it.window.pads_begin,
        it.window.pads_end,
    ];
    let mut key = [0; 21];
    key[..14].copy_from_slice(window.as_flattened());
    key[14..].copy_from_slice(&[
        it.batch,
        it.in_channels,
        it.out_channels,
        it.groups,
        it.element as u64,
        it.arithmetic as u64,
        u64::from(it.bias.is_some()),
    ]);
    key
}

// === impl Plan ===

impl Plan {
    fn new(handle: sys::cudnnHandle_t, memory: &Memory, it: &Convolution) -> Result<Self, Error> {
        let descriptors = Descriptors::new(it)?;
        let (_, scratch_bytes) = memory.scratch();
        // SAFETY: numbers and plain enumerations, for which zeros are valid values.
        let mut ranked: [sys::cudnnConvolutionFwdAlgoPerf_t; ALGORITHMS] =
            unsafe { std::mem::zeroed() };
        let mut count: c_int = 0;
        // SAFETY: handle and descriptors are alive; there is room for as many results as are asked
        // for.
        unsafe {
            result::get_convolution_forward_algorithm(
                handle,
                descriptors.x,
                descriptors.weights,
                descriptors.convolution,
                descriptors.y,
                ALGORITHMS as c_int,
                &raw mut count,
                ranked.as_mut_ptr(),
            )
        }
        .map_err(dnn_error)?;
        let fits = |found: &&sys::cudnnConvolutionFwdAlgoPerf_t| {
            found.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                && found.memory as u64 <= scratch_bytes
        };
        let ranked = &ranked[..count.unsigned_abs() as usize];
        let none = || {
            Error::Unsupported(format!(
                "cuDNN has no algorithm for {it:?} in {scratch_bytes} bytes"
            ))
        };
        let found = ranked.iter().find(fits).ok_or_else(none)?;
        descriptors.set_math(found.mathType)?;
        Ok(Self {
            algorithm: found.algo,
            workspace_bytes: found.memory,
            fused: true,
            descriptors,
        })
    }

    fn launch(
        &self,
        handle: sys::cudnnHandle_t,
        memory: &Memory,
        it: &Convolution,
    ) -> Result<(), CudnnError> {
        let at = |address: Address| (memory.arena() + address) as *mut c_void;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: handle and descriptors are alive; the operands lie in the arena, where the planner
        // keeps operations inside their ranges; the workspace is as large as was asked for. The
        // scalars are read before the call returns.
        unsafe {
            result::convolution_forward(
                handle,
                (&raw const one).cast(),
                self.descriptors.x,
                at(it.x),
                self.descriptors.weights,
                at(it.weights),
                self.descriptors.convolution,
                self.algorithm,
                memory.scratch().0 as *mut c_void,
                self.workspace_bytes,
                (&raw const zero).cast(),
                self.descriptors.y,
                at(it.y),
            )
        }
    }

    fn launch_fused(
        &self,
        handle: sys::cudnnHandle_t,
        relu: sys::cudnnActivationDescriptor_t,
        memory: &Memory,
        it: &Convolution,
        bias: Address,
    ) -> Result<(), CudnnError> {
        let at = |address: Address| (memory.arena() + address) as *mut c_void;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: as in `launch`; the addend has factor 0 and is the output itself, as cuDNN allows.
        unsafe {
            result::convolution_bias_activation_forward(
                handle,
                (&raw const one).cast(),
                self.descriptors.x,
                at(it.x),
                self.descriptors.weights,
                at(it.weights),
                self.descriptors.convolution,
                self.algorithm,
                memory.scratch().0 as *mut c_void,
                self.workspace_bytes,
                (&raw const zero).cast(),
                self.descriptors.y,
                at(it.y),
                self.descriptors.bias,
                at(bias),
                relu,
                self.descriptors.y,
                at(it.y),
            )
        }
    }
}

// === impl Descriptors ===

impl Descriptors {
    fn new(it: &Convolution) -> Result<Self, Error> {
        let data_type = data_type(it.element);
        let size = |[rows, columns]: [u64; 2]| Ok::<_, Error>([small(rows)?, small(columns)?]);
        let [in_rows, in_columns] = size(it.window.in_size)?;
        let [out_rows, out_columns] = size(it.window.out_size)?;
        let [kernel_rows, kernel_columns] = size(it.window.kernel)?;
        let batch = small(it.batch)?;
        let (inputs, outputs) = (small(it.in_channels)?, small(it.out_channels)?);
        let groups = small(it.groups)?;
        let depth = small(it.in_channels / it.groups.max(1))?;
        let these = Self::empty()?;
        let layout = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
        let tensors = [
            (these.x, [batch, inputs, in_rows, in_columns]),
            (these.y, [batch, outputs, out_rows, out_columns]),
            (these.bias, [1, outputs, 1, 1]),
        ];
        for (tensor, dims) in tensors {
            // SAFETY: the descriptor is alive.
            unsafe { result::set_tensor4d_descriptor(tensor, layout, data_type, dims) }
                .map_err(dnn_error)?;
        }
        let dims = [outputs, depth, kernel_rows, kernel_columns];
        // SAFETY: the descriptor is alive.
        unsafe { result::set_filter4d_descriptor(these.weights, data_type, layout, dims) }
            .map_err(dnn_error)?;
        these.set_window(it)?;
        // SAFETY: the descriptor is alive.
        unsafe { result::set_convolution_group_count(these.convolution, groups) }
            .map_err(dnn_error)?;
        these.set_math(math(it))?;
        Ok(these)
    }

    fn empty() -> Result<Self, Error> {
        // An error here leaks what was made before it; it means that the host has no memory left.
        Ok(Self {
            x: result::create_tensor_descriptor().map_err(dnn_error)?,
            y: result::create_tensor_descriptor().map_err(dnn_error)?,
            bias: result::create_tensor_descriptor().map_err(dnn_error)?,
            weights: result::create_filter_descriptor().map_err(dnn_error)?,
            convolution: result::create_convolution_descriptor().map_err(dnn_error)?,
        })
    }

    /// Sums are 32-bit floats for every type.
    fn set_window(&self, it: &Convolution) -> Result<(), Error> {
        let window = &it.window;
        let [top, left] = window.pads_begin;
        let [down, across] = window.strides;
        let [rows, columns] = window.dilations;
        // SAFETY: the descriptor is alive.
        unsafe {
            result::set_convolution2d_descriptor(
                self.convolution,
                small(top)?,
                small(left)?,
                small(down)?,
                small(across)?,
                small(rows)?,
                small(columns)?,
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            )
        }
        .map_err(dnn_error)
    }

    fn set_math(&self, math: sys::cudnnMathType_t) -> Result<(), Error> {
        // SAFETY: the descriptor is alive.
        unsafe { result::set_convolution_math_type(self.convolution, math) }.map_err(dnn_error)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: all were made in `empty` and are destroyed once; an error would leave one allocated.
        unsafe {
            let _leaked = result::destroy_tensor_descriptor(self.x);
            let _leaked = result::destroy_tensor_descriptor(self.y);
            let _leaked = result::destroy_tensor_descriptor(self.bias);
            let _leaked = result::destroy_filter_descriptor(self.weights);
            let _leaked = result::destroy_convolution_descriptor(self.convolution);
        }
    }
}

fn data_type(element: Element) -> sys::cudnnDataType_t {
    match element {
        Element::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
        Element::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// Full precision forbids tensor cores, which round 32-bit floats; TF32 is cuDNN's default.
fn math(it: &Convolution) -> sys::cudnnMathType_t {
    match (it.element, it.arithmetic) {
        (Element::F32, Arithmetic::Full) => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        (Element::F32, Arithmetic::Tf32) => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        _ => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
    }
}

fn small(value: u64) -> Result<c_int, Error> {
    c_int::try_from(value).map_err(|_| Error::Unsupported(format!("cuDNN cannot count to {value}")))
}
