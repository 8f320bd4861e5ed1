//! The Open Inference Protocol over gRPC, on the same port as HTTP and behind the same guard.
//!
//! This module reads calls message by message, without a framework. So the bytes of a call count against the limits of
//! all bodies while they arrive, and an error is one of the problems of the HTTP routes, which the outermost layer
//! counts and writes in the form that the client reads. The functions that answer calls also answer the HTTP routes of
//! `/v2`.

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::{MethodRouter, post},
};
use prost::Message;

use crate::{ApiState, problem::Problem};

mod call;
mod contents;
mod describe;
mod frame;
mod health;
mod infer;
mod manage;
mod memory;
mod parameters;
mod proto;
mod status;
mod stream;
mod tensors;

use call::{Call, Context};
pub use status::{is_call, render};

/// Each call by its path, with the operation of the HTTP API whose rule it has.
pub const RULES: &[(&str, &str)] = &[
    ("/inference.GRPCInferenceService/ServerLive", "v2_live"),
    ("/inference.GRPCInferenceService/ServerReady", "v2_ready"),
    (
        "/inference.GRPCInferenceService/ServerMetadata",
        "v2_server",
    ),
    (
        "/inference.GRPCInferenceService/ModelReady",
        "v2_model_ready",
    ),
    ("/inference.GRPCInferenceService/ModelMetadata", "v2_model"),
    (
        "/inference.GRPCInferenceService/ModelConfig",
        "v2_model_config",
    ),
    (
        "/inference.GRPCInferenceService/ModelStatistics",
        "v2_statistics",
    ),
    ("/inference.GRPCInferenceService/ModelInfer", "v2_infer"),
    (
        "/inference.GRPCInferenceService/ModelStreamInfer",
        "v2_infer",
    ),
    (
        "/inference.GRPCInferenceService/RepositoryIndex",
        "v2_index",
    ),
    (
        "/inference.GRPCInferenceService/RepositoryModelLoad",
        "v2_load",
    ),
    (
        "/inference.GRPCInferenceService/RepositoryModelUnload",
        "v2_unload",
    ),
    // A call that sets nothing only reads. The handlers check themselves whether the caller may change a setting.
    ("/inference.GRPCInferenceService/TraceSetting", "v2_trace"),
    ("/inference.GRPCInferenceService/LogSettings", "v2_log"),
    (
        "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
        "v2_regions",
    ),
    (
        "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
        "v2_region_register",
    ),
    (
        "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
        "v2_region_unregister",
    ),
    (
        "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
        "v2_cuda_regions",
    ),
    (
        "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
        "v2_cuda_regions",
    ),
    (
        "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
        "v2_cuda_regions_unregister",
    ),
    ("/grpc.health.v1.Health/Check", "health_ready"),
    ("/grpc.health.v1.Health/Watch", "health_ready"),
    (REFLECTION, "v2_index"),
    (REFLECTION_ALPHA, "v2_index"),
];

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// All calls.
pub fn routes() -> Router<ApiState> {
    let inference = |name: &str| format!("/inference.GRPCInferenceService/{name}");
    let router = Router::new()
        .route(&inference("ServerLive"), unary(describe::server_live))
        .route(&inference("ServerReady"), unary(describe::server_ready))
        .route(
            &inference("ServerMetadata"),
            unary(describe::server_metadata),
        )
        .route(&inference("ModelReady"), unary(describe::model_ready))
        .route(&inference("ModelMetadata"), unary(describe::model_metadata))
        .route(&inference("ModelConfig"), unary(describe::model_config))
        .route(
            &inference("ModelStatistics"),
            unary(describe::model_statistics),
        )
        .route(&inference("ModelInfer"), any(infer::model_infer))
        .route(
            &inference("ModelStreamInfer"),
            any(stream::model_stream_infer),
        )
        .route(
            &inference("RepositoryIndex"),
            unary(describe::repository_index),
        )
        .route(
            &inference("RepositoryModelLoad"),
            change(manage::load, |load| &load.model_name),
        )
        .route(
            &inference("RepositoryModelUnload"),
            change(manage::unload, |unload| &unload.model_name),
        )
        .route(&inference("TraceSetting"), unary(manage::trace_setting))
        .route(
            &inference("LogSettings"),
            change(manage::log_settings, |_| "logging"),
        )
        .route(
            &inference("SystemSharedMemoryStatus"),
            unary(memory::system_status),
        )
        .route(
            &inference("SystemSharedMemoryRegister"),
            change(memory::register, |region| &region.name),
        )
        .route(
            &inference("SystemSharedMemoryUnregister"),
            change(memory::unregister, |region| {
                // Without a name, the call concerns all regions.
                match region.name.as_str() {
                    "" => crate::memory::ALL,
                    name => name,
                }
            }),
        )
        .route(
            &inference("CudaSharedMemoryStatus"),
            unary(memory::cuda_status),
        )
        .route(
            &inference("CudaSharedMemoryRegister"),
            unary(memory::cuda_register),
        )
        .route(
            &inference("CudaSharedMemoryUnregister"),
            unary(memory::cuda_unregister),
        )
        .route("/grpc.health.v1.Health/Check", unary(health::check))
        .route("/grpc.health.v1.Health/Watch", any(health::watch));
    with_reflection(router)
}

/// Adds the reflection services, in both of their versions.
fn with_reflection(router: Router<ApiState>) -> Router<ApiState> {
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure();
        builder.register_encoded_file_descriptor_set(proto::DESCRIPTORS)
    };
    // They fail only if the descriptors are not those that the build wrote.
    let router = match builder().build_v1() {
        Ok(service) => router.route_service(REFLECTION, service),
        Err(error) => failed(router, &error),
    };
    match builder().build_v1alpha() {
        Ok(service) => router.route_service(REFLECTION_ALPHA, service),
        Err(error) => failed(router, &error),
    }
}

fn failed(router: Router<ApiState>, error: &dyn std::fmt::Display) -> Router<ApiState> {
    tracing::error!(%error, "gRPC reflection is not served");
    router
}

/// A call with one message as request and one as answer.
fn unary<M, R, F>(run: fn(Context, M) -> F) -> MethodRouter<ApiState>
where
    M: Message + Default + 'static,
    R: Message + 'static,
    F: Future<Output = Result<R, Problem>> + Send + 'static,
{
    change(run, |_| "")
}

/// The same for a change, which is kept in the audit record: `about` returns what is changed.
fn change<M, R, F>(run: fn(Context, M) -> F, about: fn(&M) -> &str) -> MethodRouter<ApiState>
where
    M: Message + Default + 'static,
    R: Message + 'static,
    F: Future<Output = Result<R, Problem>> + Send + 'static,
{
    any(move |call: Call| call.answer(run, about))
}

/// A call that reads its messages itself.
fn any<F>(run: impl FnOnce(Call) -> F + Clone + Send + Sync + 'static) -> MethodRouter<ApiState>
where
    F: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    post(
        |State(state): State<ApiState>, request: Request| async move {
            run(Call::new(state, request)?).await
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of those described calls that the service answers.
    fn paths() -> Vec<String> {
        use prost_types::FileDescriptorSet;
        let set = FileDescriptorSet::decode(proto::DESCRIPTORS).expect("the build has written it");
        let services = set.file.iter().flat_map(|file| {
            let service = move |of: &prost_types::ServiceDescriptorProto| {
                let methods = of.method.iter();
                let path = |method: &prost_types::MethodDescriptorProto| {
                    format!("/{}.{}/{}", file.package(), of.name(), method.name())
                };
                methods.map(path).collect::<Vec<_>>()
            };
            file.service.iter().flat_map(service)
        });
        services.collect()
    }

    #[test]
    fn every_described_call_has_a_rule() {
        for path in paths() {
            assert!(RULES.iter().any(|(ruled, _)| *ruled == path), "{path}");
        }
    }
}
