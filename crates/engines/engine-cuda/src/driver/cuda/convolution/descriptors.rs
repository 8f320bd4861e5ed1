//! The description of a convolution for cuDNN.

use std::ffi::c_int;

use cudarc::cudnn::{result, sys};
use sextant_engine::Error;

use super::super::errors::dnn_error;
use crate::operation::{Arithmetic, Convolution, Element};

/// The descriptors of one convolution.
pub(super) struct Descriptors {
    pub x: sys::cudnnTensorDescriptor_t,
    pub y: sys::cudnnTensorDescriptor_t,
    pub bias: sys::cudnnTensorDescriptor_t,
    pub weights: sys::cudnnFilterDescriptor_t,
    pub convolution: sys::cudnnConvolutionDescriptor_t,
}

// === impl Descriptors ===

impl Descriptors {
    pub(super) fn new(it: &Convolution) -> Result<Self, Error> {
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
        let layout = match it.channels_last {
            true => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
            false => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        };
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
        // An error here leaks the descriptors made before it; it means that the host has no memory left.
        Ok(Self {
            x: result::create_tensor_descriptor().map_err(dnn_error)?,
            y: result::create_tensor_descriptor().map_err(dnn_error)?,
            bias: result::create_tensor_descriptor().map_err(dnn_error)?,
            weights: result::create_filter_descriptor().map_err(dnn_error)?,
            convolution: result::create_convolution_descriptor().map_err(dnn_error)?,
        })
    }

    /// Describes the window. Sums are 32-bit floats for every type.
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

    pub(super) fn set_math(&self, math: sys::cudnnMathType_t) -> Result<(), Error> {
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

/// The math type: full precision forbids tensor cores, which round 32-bit floats; TF32 is cuDNN's default.
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
