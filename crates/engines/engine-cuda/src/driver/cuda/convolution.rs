//! Convolutions with cuDNN.
//!
//! The algorithm is the first in cuDNN's list for the shapes that fits into the scratch memory. cuDNN is asked once,
//! when an operation is prepared. Addend, bias and ReLU are part of the same call where cuDNN supports this.

mod descriptors;

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
};

use cudarc::{
    cudnn::{result, result::CudnnError, sys},
    driver::CudaStream,
};
use parking_lot::Mutex;
use sextant_engine::Error;

use self::descriptors::Descriptors;
use super::{errors::dnn_error, memory::Memory};
use crate::operation::{Activation, Address, Arithmetic, Convolution, Element};

/// Algorithms that cuDNN is asked to rank.
const ALGORITHMS: usize = 8;

/// cuDNN and the algorithms that it chose.
pub(super) struct Convolutions {
    state: Mutex<State>,
}

struct State {
    handle: sys::cudnnHandle_t,
    /// The descriptors of no activation and of ReLU.
    activations: [sys::cudnnActivationDescriptor_t; 2],
    plans: HashMap<Key, Plan>,
}

/// What a plan depends on: everything except addresses.
type Key = [u64; 22];

struct Plan {
    descriptors: Descriptors,
    algorithm: sys::cudnnConvolutionFwdAlgo_t,
    workspace_bytes: usize,
    /// Whether addend, bias and activation may be part of the call; `false` once cuDNN has refused it.
    fused: bool,
}

// SAFETY: cuDNN's handle and descriptors may be used by any thread as long as one at a time does; they
// are reached through the mutex.
unsafe impl Send for State {}

// === impl Convolutions ===

impl Convolutions {
    /// The context must be current.
    pub(super) fn new() -> Result<Self, Error> {
        use sys::cudnnActivationMode_t::{CUDNN_ACTIVATION_IDENTITY, CUDNN_ACTIVATION_RELU};
        let activation = |mode| -> Result<sys::cudnnActivationDescriptor_t, Error> {
            let made = result::create_activation_descriptor().map_err(dnn_error)?;
            let nan = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
            // SAFETY: the descriptor was just made.
            unsafe { result::set_activation_descriptor(made, mode, nan, 0.0) }
                .map_err(dnn_error)?;
            Ok(made)
        };
        let state = State {
            activations: [
                activation(CUDNN_ACTIVATION_IDENTITY)?,
                activation(CUDNN_ACTIVATION_RELU)?,
            ],
            handle: result::create_handle().map_err(dnn_error)?,
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
        let mut state = self.state.lock();
        let key = key(it);
        if !state.plans.contains_key(&key) {
            let plan = Plan::new(state.handle, memory, it)?;
            state.plans.insert(key, plan);
        }
        Ok(())
    }

    /// Puts a prepared convolution into a stream of the bound context. Returns `false` if the addend, bias and
    /// activation are still to be applied.
    pub(super) fn launch(
        &self,
        stream: &CudaStream,
        memory: &Memory,
        it: &Convolution,
    ) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let State {
            handle,
            activations,
            plans,
        } = &mut *state;
        // SAFETY: handle and stream are alive.
        unsafe { result::set_stream(*handle, stream.cu_stream().cast()) }.map_err(dnn_error)?;
        let unprepared = || Error::Failed("a convolution was not prepared".to_owned());
        let plan = plans.get_mut(&key(it)).ok_or_else(unprepared)?;
        if let (true, Some(bias)) = (plan.fuses(it), it.bias) {
            let activation = activations[it.activation as usize];
            match plan.launch_fused(*handle, activation, memory, it, bias) {
                Err(CudnnError(
                    sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED
                    | sys::cudnnStatus_t::CUDNN_STATUS_BAD_PARAM,
                )) => plan.fused = false,
                launched => return launched.map(|()| true).map_err(dnn_error),
            }
        }
        plan.launch(*handle, memory, it).map_err(dnn_error)?;
        Ok(it.bias.is_none() && it.addend.is_none() && it.activation == Activation::None)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: both were made in `Convolutions::new` and are destroyed once.
        unsafe {
            for activation in self.activations {
                let _leaked = sys::cudnnDestroyActivationDescriptor(activation);
            }
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
    let mut key = [0; 22];
    key[..14].copy_from_slice(window.as_flattened());
    key[14..].copy_from_slice(&[
        it.batch,
        it.in_channels,
        it.out_channels,
        it.groups,
        it.element as u64,
        it.arithmetic as u64,
        u64::from(it.bias.is_some()),
        u64::from(it.channels_last),
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
        // Full precision stays full precision, even if another algorithm is faster.
        if it.element != Element::F32 || it.arithmetic == Arithmetic::Tf32 {
            descriptors.set_math(found.mathType)?;
        }
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
        let at = |address: Address| (memory.arena() + address.get()) as *mut c_void;
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

    /// Whether addend, bias and activation may be part of the call. Without an activation, cuDNN supports this for one
    /// algorithm only.
    fn fuses(&self, it: &Convolution) -> bool {
        use sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
        let linear = it.activation == Activation::None;
        self.fused
            && (!linear || self.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    }

    fn launch_fused(
        &self,
        handle: sys::cudnnHandle_t,
        activation: sys::cudnnActivationDescriptor_t,
        memory: &Memory,
        it: &Convolution,
        bias: Address,
    ) -> Result<(), CudnnError> {
        let at = |address: Address| (memory.arena() + address.get()) as *mut c_void;
        let one = 1.0f32;
        let share = if it.addend.is_some() { 1.0f32 } else { 0.0 };
        let addend = it.addend.unwrap_or(it.y);
        // SAFETY: as in `launch`; where there is no addend, it has factor 0 and is the output itself, as cuDNN allows.
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
                (&raw const share).cast(),
                self.descriptors.y,
                at(addend),
                self.descriptors.bias,
                at(bias),
                activation,
                self.descriptors.y,
                at(it.y),
            )
        }
    }
}
