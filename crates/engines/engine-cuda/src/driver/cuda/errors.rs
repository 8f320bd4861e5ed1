//! Converts errors of NVIDIA's libraries to the engine's.

use cudarc::{
    cublaslt::result::CublasError,
    cudnn::result::CudnnError,
    driver::{DriverError, sys::CUresult},
};
use sextant_engine::{Error, Shortage};

use crate::NAME;

pub(super) fn unavailable(reason: String) -> Error {
    Error::Unavailable {
        engine: NAME,
        reason,
    }
}

/// Errors after which a context returns only errors become [`Error::Lost`].
pub(super) fn driver_error(error: DriverError) -> Error {
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory(Shortage::fixed(
            "the device has no room for what the configuration reserves; lower \
                 the sizes or free the device"
                .to_owned(),
        )),
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUresult::CUDA_ERROR_DEINITIALIZED
        | CUresult::CUDA_ERROR_UNKNOWN => Error::Lost(format!("{error}")),
        _ => Error::Failed(format!("{error}")),
    }
}

pub(super) fn blas_error(error: CublasError) -> Error {
    Error::Failed(format!("cuBLASLt: {error}"))
}

pub(super) fn dnn_error(error: CudnnError) -> Error {
    Error::Failed(format!("cuDNN: {error}"))
}
