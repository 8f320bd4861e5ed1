//! Products of matrices with cuBLASLt.
//!
//! cuBLASLt counts in columns, the planner in rows. So the driver asks for the transposed product: `C' = B' A'`, where
//! a stored row-major matrix already is its own transpose. The heuristic names the algorithm for shapes, types and
//! alignment. It is asked once, when an operation is prepared. If it names none (empty sums, odd strides), our own
//! kernel computes the product.

mod descriptors;

use std::{collections::HashMap, ffi::c_void};

use cudarc::{
    cublaslt::{result, result::CublasError, sys},
    driver::CudaStream,
};
use parking_lot::RwLock;
use sextant_engine::Error;

use self::descriptors::{Descriptors, Preference, addend_alignment, alignment};
use super::{errors::blas_error, memory::Memory};
use crate::operation::{Element, Gemm, Matrix};

/// cuBLASLt and the algorithms that it chose.
pub(super) struct Matmuls {
    handle: sys::cublasLtHandle_t,
    chosen: RwLock<HashMap<Key, Choice>>,
}

/// What a choice depends on: everything except addresses, of which only the alignment counts.
type Key = [u64; 21];

#[derive(Clone, Copy)]
enum Choice {
    Library {
        algorithm: sys::cublasLtMatmulAlgo_t,
        workspace_bytes: usize,
    },
    /// There is no algorithm.
    OwnKernel,
}

// SAFETY: cuBLASLt may be used by several threads with one handle.
unsafe impl Send for Matmuls {}
// SAFETY: as above.
unsafe impl Sync for Matmuls {}

// === impl Matmuls ===

impl Matmuls {
    /// The context must be current.
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            handle: result::create_handle().map_err(blas_error)?,
            chosen: RwLock::default(),
        })
    }

    pub(super) fn version(&self) -> usize {
        // SAFETY: has no requirements.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Chooses an algorithm.
    pub(super) fn prepare(&self, memory: &Memory, it: &Gemm) -> Result<(), Error> {
        let key = key(it);
        if self.choice(&key).is_some() {
            return Ok(());
        }
        let choice = if it.k == 0 {
            Choice::OwnKernel
        } else {
            self.choose(memory, it)?
        };
        if matches!(choice, Choice::OwnKernel) {
            tracing::debug!(product = ?it, "cuBLASLt has no algorithm");
        }
        let mut chosen = self.chosen.write();
        chosen.insert(key, choice);
        Ok(())
    }

    /// Puts a prepared product into a stream of the bound context. Returns `false` if our own kernel must compute it.
    pub(super) fn launch(
        &self,
        stream: &CudaStream,
        memory: &Memory,
        it: &Gemm,
    ) -> Result<bool, Error> {
        if it.m * it.n * it.batch == 0 {
            return Ok(true);
        }
        let unprepared = || Error::Failed("a product of matrices was not prepared".to_owned());
        let choice = self.choice(&key(it)).ok_or_else(unprepared)?;
        let Choice::Library {
            algorithm,
            workspace_bytes,
        } = choice
        else {
            return Ok(false);
        };
        let descriptors = Descriptors::new(memory, it).map_err(blas_error)?;
        let (alpha, beta) = (it.alpha, if it.addend.is_some() { 1.0f32 } else { 0.0 });
        let addend = Matrix {
            address: it.addend.unwrap_or(it.c.address),
            ..it.c
        };
        let at = |matrix: &Matrix| (memory.arena() + matrix.address.get()) as *mut c_void;
        // SAFETY: handle, descriptors and stream are alive; the factors and the product lie in the
        // arena, where the planner keeps operations inside their ranges; the workspace is as large
        // as the algorithm was chosen for. The scalars are read before the call returns.
        unsafe {
            result::matmul(
                self.handle,
                descriptors.product.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                at(&it.b),
                descriptors.left.0,
                at(&it.a),
                descriptors.right.0,
                at(&addend),
                descriptors.result.0,
                at(&it.c),
                descriptors.result.0,
                &raw const algorithm,
                memory.scratch().0 as *mut c_void,
                workspace_bytes,
                stream.cu_stream().cast(),
            )
        }
        .map_err(blas_error)?;
        Ok(true)
    }

    fn choice(&self, key: &Key) -> Option<Choice> {
        let chosen = self.chosen.read();
        chosen.get(key).copied()
    }

    fn choose(&self, memory: &Memory, it: &Gemm) -> Result<Choice, Error> {
        let Ok(descriptors) = Descriptors::new(memory, it) else {
            return Ok(Choice::OwnKernel);
        };
        let preference = Preference::new(memory, it).map_err(blas_error)?;
        // SAFETY: handle and descriptors are alive.
        let found = unsafe {
            result::get_matmul_algo_heuristic(
                self.handle,
                descriptors.product.0,
                descriptors.left.0,
                descriptors.right.0,
                descriptors.result.0,
                descriptors.result.0,
                preference.0,
            )
        };
        match found {
            Ok(found) => Ok(Choice::Library {
                algorithm: found.algo,
                workspace_bytes: found.workspaceSize,
            }),
            Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED
                | sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE,
            )) => Ok(Choice::OwnKernel),
            Err(error) => Err(blas_error(error)),
        }
    }
}

impl Drop for Matmuls {
    fn drop(&mut self) {
        // SAFETY: made by `create_handle`, destroyed once.
        if let Err(error) = unsafe { result::destroy_handle(self.handle) } {
            tracing::warn!(%error, "cuBLASLt keeps a handle");
        }
    }
}

fn key(it: &Gemm) -> Key {
    let matrix = |it: &Matrix, element: Element| {
        [
            it.row_stride,
            it.batch_stride,
            u64::from(it.transposed),
            alignment(it, element),
        ]
    };
    let [a, b, c] = [&it.a, &it.b, &it.c].map(|factor| matrix(factor, it.element));
    let mut key = [0; 21];
    key[..4].copy_from_slice(&a);
    key[4..8].copy_from_slice(&b);
    key[8..12].copy_from_slice(&c);
    key[12..].copy_from_slice(&[
        it.m,
        it.n,
        it.k,
        it.batch,
        u64::from(it.bias.is_some()),
        it.activation as u64,
        it.element as u64,
        it.arithmetic as u64,
        addend_alignment(it),
    ]);
    key
}
