//! The description of a product for cuBLASLt.

use std::mem::size_of;

use cudarc::cublaslt::{result, result::CublasError, sys};

use super::super::memory::Memory;
use crate::operation::{Activation, Arithmetic, Element, Gemm, Matrix};

/// The descriptors of one product.
pub(super) struct Descriptors {
    pub product: Product,
    pub left: Layout,
    pub right: Layout,
    pub result: Layout,
}

/// The kind of product.
pub(super) struct Product(pub sys::cublasLtMatmulDesc_t);
/// The layout of a matrix in memory.
pub(super) struct Layout(pub sys::cublasLtMatrixLayout_t);
/// The limits of an algorithm.
pub(super) struct Preference(pub sys::cublasLtMatmulPreference_t);

/// The alignment of the addresses of all matrices of a batch, at most 256 bytes.
pub(super) fn alignment(matrix: &Matrix, element: Element) -> u64 {
    let step = matrix.batch_stride * element.bytes();
    let all = matrix.address.get() | step | 256;
    1 << all.trailing_zeros()
}

/// The alignment of the addend; 0 if there is none.
pub(super) fn addend_alignment(it: &Gemm) -> u64 {
    let addend = it.addend.map(|address| Matrix { address, ..it.c });
    addend.map_or(0, |addend| alignment(&addend, it.element))
}

fn data_type(element: Element) -> sys::cudaDataType {
    match element {
        Element::F16 => sys::cudaDataType::CUDA_R_16F,
        Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        _ => sys::cudaDataType::CUDA_R_32F,
    }
}

/// The type of computation. Sums are 32-bit floats for every type.
fn compute_type(it: &Gemm) -> sys::cublasComputeType_t {
    match (it.element, it.arithmetic) {
        (Element::F32, Arithmetic::Tf32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    }
}

// === impl Descriptors ===

impl Descriptors {
    pub(super) fn new(memory: &Memory, it: &Gemm) -> Result<Self, CublasError> {
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
        // The factors are exchanged.
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(&it.b))?;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(&it.a))?;
        let epilogue = epilogue(it) as u32;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        if let Some(bias) = it.bias {
            let address = memory.arena() + bias.get();
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
    /// `size` is rows and columns of the factor before its transposition.
    fn new(it: &Gemm, matrix: &Matrix, [rows, columns]: [u64; 2]) -> Result<Self, CublasError> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let (stored_rows, stored_columns) = match matrix.transposed {
            true => (columns, rows),
            false => (rows, columns),
        };
        // With one row, the stride between rows has no meaning.
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
    pub(super) fn new(memory: &Memory, it: &Gemm) -> Result<Self, CublasError> {
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
                match addend_alignment(it) {
                    0 => result,
                    addend => addend as u32,
                },
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
