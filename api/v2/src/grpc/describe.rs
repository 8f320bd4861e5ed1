//! The calls that describe the server and its models.

use sextant_types::Code;

use super::{call::Context, proto};
use crate::{
    PLATFORM, ResolvedName, config,
    config::ConfigTensorBody,
    problem::Problem,
    signature::SpecBody,
    statistics::{self, DurationStatBody, StatisticBody},
};

/// Whether the server is alive.
pub async fn server_live(
    _: Context,
    _: proto::ServerLiveRequest,
) -> Result<proto::ServerLiveResponse, Problem> {
    Ok(proto::ServerLiveResponse { live: true })
}

/// Whether the server accepts requests.
pub async fn server_ready(
    context: Context,
    _: proto::ServerReadyRequest,
) -> Result<proto::ServerReadyResponse, Problem> {
    let ready = context.state.check_ready().is_ok();
    Ok(proto::ServerReadyResponse { ready })
}

/// Whether a model can answer queries; a model that does not exist cannot.
pub async fn model_ready(
    context: Context,
    request: proto::ModelReadyRequest,
) -> Result<proto::ModelReadyResponse, Problem> {
    let ready = match named(&context, request.name, &request.version).await {
        Ok(named) => named.check_ready(&context.state).is_ok(),
        Err(problem) if problem.code() == Code::ModelNotFound => false,
        Err(problem) => return Err(problem),
    };
    Ok(proto::ModelReadyResponse { ready })
}

/// The server's name, version and extensions.
pub async fn server_metadata(
    context: Context,
    _: proto::ServerMetadataRequest,
) -> Result<proto::ServerMetadataResponse, Problem> {
    Ok(proto::ServerMetadataResponse {
        name: "sextant".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: crate::extensions(&context.state)
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

/// Inputs and outputs of an application, model or variant.
pub async fn model_metadata(
    context: Context,
    request: proto::ModelMetadataRequest,
) -> Result<proto::ModelMetadataResponse, Problem> {
    let named = named(&context, request.name, &request.version).await?;
    let tensor = |spec| {
        let SpecBody {
            name,
            datatype,
            shape,
        } = SpecBody::from(spec);
        proto::model_metadata_response::TensorMetadata {
            name,
            datatype: datatype.to_owned(),
            shape,
        }
    };
    Ok(proto::ModelMetadataResponse {
        versions: named.version_names(&context.state).await?,
        name: named.name,
        platform: PLATFORM.to_owned(),
        inputs: named.signature.inputs.iter().map(tensor).collect(),
        outputs: named.signature.outputs.iter().map(tensor).collect(),
    })
}

/// The configuration of an application, model or variant.
pub async fn model_config(
    context: Context,
    request: proto::ModelConfigRequest,
) -> Result<proto::ModelConfigResponse, Problem> {
    let named = named(&context, request.name, &request.version).await?;
    let body = config::of(&context.state, named).await?;
    let data_type = |of: &ConfigTensorBody| {
        let data_type = proto::DataType::from_str_name(&of.data_type);
        data_type.unwrap_or(proto::DataType::TypeInvalid).into()
    };
    let input = body.input.into_iter().map(|of| proto::ModelInput {
        data_type: data_type(&of),
        name: of.name,
        dims: of.dims,
    });
    let output = body.output.into_iter().map(|of| proto::ModelOutput {
        data_type: data_type(&of),
        name: of.name,
        dims: of.dims,
    });
    let batching = proto::model_config::SchedulingChoice::DynamicBatching;
    let config = proto::ModelConfig {
        input: input.collect(),
        output: output.collect(),
        name: body.name,
        platform: body.platform.to_owned(),
        backend: body.backend.to_owned(),
        max_batch_size: body.max_batch_size.into(),
        scheduling_choice: (body.max_batch_size > 0).then(|| batching(Default::default())),
        model_transaction_policy: None,
    };
    let config = Some(config);
    Ok(proto::ModelConfigResponse { config })
}

/// The statistics of a name; without a name, of each variant that has answered anything.
pub async fn model_statistics(
    context: Context,
    request: proto::ModelStatisticsRequest,
) -> Result<proto::ModelStatisticsResponse, Problem> {
    let state = &context.state;
    let bodies = match request.name.is_empty() {
        true => statistics::all(state, context.caller()?),
        false => {
            let named = named(&context, request.name, &request.version).await?;
            statistics::of(state, &named).await?
        }
    };
    let model_stats = bodies.into_iter().map(statistic).collect();
    Ok(proto::ModelStatisticsResponse { model_stats })
}

fn statistic(body: StatisticBody) -> proto::ModelStatistics {
    let duration = |of: DurationStatBody| {
        Some(proto::StatisticDuration {
            count: of.count,
            ns: of.ns,
        })
    };
    let batch_stats = body
        .batch_stats
        .iter()
        .map(|of| proto::InferBatchStatistics {
            batch_size: of.batch_size,
            compute_input: duration(of.compute_input),
            compute_infer: duration(of.compute_infer),
            compute_output: duration(of.compute_output),
        });
    let of = body.inference_stats;
    proto::ModelStatistics {
        name: body.name,
        version: body.version,
        last_inference: body.last_inference,
        inference_count: body.inference_count,
        execution_count: body.execution_count,
        inference_stats: Some(proto::InferStatistics {
            success: duration(of.success),
            fail: duration(of.fail),
            queue: duration(of.queue),
            compute_input: duration(of.compute_input),
            compute_infer: duration(of.compute_infer),
            compute_output: duration(of.compute_output),
            ..Default::default()
        }),
        batch_stats: batch_stats.collect(),
    }
}

/// Every variant and whether it is loaded.
pub async fn repository_index(
    context: Context,
    request: proto::RepositoryIndexRequest,
) -> Result<proto::RepositoryIndexResponse, Problem> {
    let entries = crate::entries(&context.state, context.caller()?, request.ready).await?;
    let models = entries
        .into_iter()
        .map(|entry| proto::repository_index_response::ModelIndex {
            name: entry.name,
            version: entry.version,
            state: entry.state.to_owned(),
            reason: entry.reason,
        });
    let models = models.collect();
    Ok(proto::RepositoryIndexResponse { models })
}

/// What a name and a version stand for.
pub async fn named(
    context: &Context,
    name: String,
    version: &str,
) -> Result<ResolvedName, Problem> {
    ResolvedName::find(&context.state, context.caller()?, name, version).await
}
