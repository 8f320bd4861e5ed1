//! Products of matrices with cuBLASLt.
//!
//! cuBLASLt counts in columns where the planner counts in rows, so the transposed product is what is
//! asked for: `C' = B' A'`, where a stored row-major matrix already is its own transpose. The algorithm
//! is what the heuristic names for shapes, types and alignment; it is asked once, when an operation is
//! prepared. Where it names none (empty sums, odd strides) our own kernel computes.

use std::{
    collections::HashMap,
    ffi::c_void,
    mem::size_of,
    sync::{PoisonError, RwLock},
};

use cudarc::{
    cublaslt::{result, result::CublasError, sys},
    driver::CudaStream,
};
use sextant_engine::Error;

use super::{errors::blas_error, memory::Memory};
use crate::operation::{Activation, Arithmetic, Element, Gemm, Matrix};

/// cuBLASLt and what it chose.
pub(super) struct Matmuls {
    handle: sys::cublasLtHandle_t,
    chosen: RwLock<HashMap<Key, Choice>>,
}

/// What a choice depends on: everything but addresses, of which only the alignment counts.
type Key = [u64; 20];

#[derive(Clone, Copy)]
enum Choice {
    Library {
        algorithm: sys::cublasLtMatmulAlgo_t,
        workspace_bytes: usize,
    },
    /// There is no algorithm.
    OwnKernel,
}

/// The descriptors of one product.
struct Descriptors {
    product: Product,
    left: Layout,
    right: Layout,
    result: Layout,
}

struct Product(sys::cublasLtMatmulDesc_t);
struct Layout(sys::cublasLtMatrixLayout_t);
struct Preference(sys::cublasLtMatmulPreference_t);

// SAFETY: cuBLASLt may be used by several threads with one handle.
unsafe impl Send for Matmuls {}
// SAFETY: as above.
unsafe impl Sync for Matmuls {}

// === impl Matmuls ===

impl Matmuls {
    /// The context is current.
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
        let mut chosen = self.chosen.write().unwrap_or_else(PoisonError::into_inner);
        chosen.insert(key, choice);
        Ok(())
    }

    /// Puts a prepared product into a stream of the bound context; `false` where it is for our own
    /// kernel to compute.
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
        let (alpha, beta) = (it.alpha, 0.0f32);
        let at = |matrix: &Matrix| (memory.arena() + matrix.address) as *mut c_void;
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
                at(&it.c),
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
        let chosen = self.chosen.read().unwrap_or_else(PoisonError::into_inner);
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
        Ok(match found {
            Ok(found) => Choice::Library {
                algorithm: found.algo,
                workspace_bytes: found.workspaceSize,
            },
            Err(_) => Choice::OwnKernel,
        })
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
    let mut key = [0; 20];
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
    ]);
    key
}

/// What the addresses of all matrices of a batch are multiples of, up to 256 bytes.
fn alignment(matrix: &Matrix, element: Element) -> u64 {
    let step = matrix.batch_stride * element.bytes();
    let all = matrix.address | step | 256;
    1 << all.trailing_zeros()
}

fn data_type(element: Element) -> sys::cudaDataType {
    match element {
        Element::F16 => sys::cudaDataType::CUDA_R_16F,
        Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        _ => sys::cudaDataType::CUDA_R_32F,
    }
}

/// Sums are 32-bit floats for every type.
fn compute_type(it: &Gemm) -> sys::cublasComputeType_t {
    match (it.element, it.arithmetic) {
        (Element::F32, Arithmetic::Tf32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    }
}

// === impl Descriptors ===

impl Descriptors {
    fn new(memory: &Memory, it: &Gemm) -> Result<Self, CublasError> {
        Ok(Self {
            product: Product::new(memory, it)?,
            left: Layout::new(it, &it.b, [it.k, it.n])?,
            right: Layout::new(it, &it.a, [it.m, it.k])?,
            result: Layout::new(it, &it.c, [it.m, it.n])?,
        })
    }
}

// === impl Product ===

impl Product {
    fn new(memory: &Memory, it: &Gemm) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let scale = sys::cudaDataType::CUDA_R_32F;
        let product = Self(result::create_matmul_desc(compute_type(it), scale)?);
        // The factors change places.
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(&it.b))?;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(&it.a))?;
        let epilogue = epilogue(it) as u32;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        if let Some(bias) = it.bias {
            let address = memory.arena() + bias;
            product.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address)?;
        }
        Ok(product)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value);
        // SAFETY: the descriptor is alive; the value is read before the call returns.
        unsafe {
            result::set_matmul_desc_attribute(self.0, attribute, value.cast(), size_of::<T>())
        }
    }
}

/// `CUBLAS_OP_T` or `CUBLAS_OP_N` of `cublas_api.h`.
fn operation(matrix: &Matrix) -> i32 {
    i32::from(matrix.transposed)
}

fn epilogue(it: &Gemm) -> sys::cublasLtEpilogue_t {
    use sys::cublasLtEpilogue_t as Epilogue;
    match (it.bias.is_some(), it.activation) {
        (false, Activation::None) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
        (false, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU,
        (true, Activation::None) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
        (true, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // SAFETY: made by `create_matmul_desc`, destroyed once; an error would leave it allocated.
        let _leaked = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

// === impl Layout ===

impl Layout {
    /// `size` is rows and columns of the factor, before it is stored transposed.
    fn new(it: &Gemm, matrix: &Matrix, [rows, columns]: [u64; 2]) -> Result<Self, CublasError> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let (stored_rows, stored_columns) = match matrix.transposed {
            true => (columns, rows),
            false => (rows, columns),
        };
        // The step between rows means nothing where there is one row.
        let step = matrix.row_stride.max(stored_columns);
        let element = data_type(it.element);
        let layout =
            result::create_matrix_layout(element, stored_columns, stored_rows, step.cast_signed())?;
        let layout = Self(layout);
        layout.set(
            Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            &(it.batch as i32),
        )?;
        layout.set(
            Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            &matrix.batch_stride.cast_signed(),
        )?;
        Ok(layout)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatrixLayoutAttribute_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value);
        // SAFETY: the layout is alive; the value is read before the call returns.
        unsafe {
            result::set_matrix_layout_attribute(self.0, attribute, value.cast(), size_of::<T>())
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made by `create_matrix_layout`, destroyed once; an error would leave it allocated.
        let _leaked = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

// === impl Preference ===

impl Preference {
    fn new(memory: &Memory, it: &Gemm) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Self(result::create_matmul_pref()?);
        let (_, scratch_bytes) = memory.scratch();
        preference.set(
            Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &(scratch_bytes as usize),
        )?;
        let alignment = |matrix| alignment(matrix, it.element) as u32;
        let result = alignment(&it.c);
        let alignments = [
            (
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                alignment(&it.b),
            ),
            (
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                alignment(&it.a),
            ),
            (
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                result,
            ),
            (
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                result,
            ),
        ];
        for (attribute, bytes) in alignments {
            preference.set(attribute, &bytes)?;
        }
        Ok(preference)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value);
        // SAFETY: the preference is alive; the value is read before the call returns.
        unsafe {
            result::set_matmul_pref_attribute(self.0, attribute, value.cast(), size_of::<T>())
        }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `create_matmul_pref`, destroyed once; an error would leave it allocated.
        let _leaked = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
