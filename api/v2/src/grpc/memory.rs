//! Shared memory over gRPC.

use std::collections::BTreeMap;

use sextant_types::Code;

use super::{call::Context, proto};
use crate::{memory, problem::Problem, regions::Registration};

/// A region of the caller, or all of its regions if the request names none.
pub async fn system_status(
    context: Context,
    request: proto::SystemSharedMemoryStatusRequest,
) -> Result<proto::SystemSharedMemoryStatusResponse, Problem> {
    let name = Some(&*request.name).filter(|name| !name.is_empty());
    let listed = memory::listed(&context.state, context.caller()?, name)?;
    let regions = listed.into_iter().map(|region| {
        let status = proto::system_shared_memory_status_response::RegionStatus {
            name: region.name.clone(),
            key: region.key,
            offset: region.offset,
            byte_size: region.byte_size,
        };
        (region.name, status)
    });
    let regions: BTreeMap<_, _> = regions.collect();
    Ok(proto::SystemSharedMemoryStatusResponse { regions })
}

/// Registers shared memory of this machine.
pub async fn register(
    context: Context,
    request: proto::SystemSharedMemoryRegisterRequest,
) -> Result<proto::SystemSharedMemoryRegisterResponse, Problem> {
    let registration = Registration {
        name: request.name,
        key: request.key,
        offset: request.offset,
        byte_size: request.byte_size,
    };
    let regions = context.state.regions();
    regions.register(context.caller()?, registration)?;
    Ok(proto::SystemSharedMemoryRegisterResponse {})
}

/// Forgets a region of the caller, or all of its regions if the request names none.
pub async fn unregister(
    context: Context,
    request: proto::SystemSharedMemoryUnregisterRequest,
) -> Result<proto::SystemSharedMemoryUnregisterResponse, Problem> {
    let name = Some(&*request.name).filter(|name| !name.is_empty());
    let regions = context.state.regions();
    regions.unregister(context.caller()?, name)?;
    Ok(proto::SystemSharedMemoryUnregisterResponse {})
}

/// The regions of a GPU's memory: there are none, because none can be registered.
pub async fn cuda_status(
    _: Context,
    _: proto::CudaSharedMemoryStatusRequest,
) -> Result<proto::CudaSharedMemoryStatusResponse, Problem> {
    Ok(proto::CudaSharedMemoryStatusResponse::default())
}

/// Refuses.
pub async fn cuda_register(
    _: Context,
    _: proto::CudaSharedMemoryRegisterRequest,
) -> Result<proto::CudaSharedMemoryRegisterResponse, Problem> {
    let detail =
        "a GPU's memory cannot be shared: use system shared memory or `raw_input_contents`";
    Err(Problem::new(Code::RouteNotFound, detail))
}

/// Nothing to forget: no memory of a GPU can be registered.
pub async fn cuda_unregister(
    _: Context,
    _: proto::CudaSharedMemoryUnregisterRequest,
) -> Result<proto::CudaSharedMemoryUnregisterResponse, Problem> {
    Ok(proto::CudaSharedMemoryUnregisterResponse {})
}
