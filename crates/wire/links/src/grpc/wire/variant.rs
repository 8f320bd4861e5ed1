//! Variants as messages: what a worker must know to load one.

use std::collections::BTreeMap;

use sextant_types::{
    Accuracy, AccuracyKind, ApplicationId, BatchLatency, ConcurrentRun, DeviceTypeName, Digest,
    EngineName, Isolation, Metric, ModelId, Optimization, OutputAxis, Padding, Precision, Profile,
    Release, Resources, ShapeProfile, Signature, Sizes, TensorSpec, Variant, VariantId,
    VariantSpec,
};

use super::{
    MalformedFrame, field,
    tensors::{data_type, read_data_type},
};
use crate::grpc::proto;

pub(super) fn pack(variant: Variant) -> proto::Variant {
    let profiles = variant.profiles.into_iter();
    let profiles = profiles.map(|(device_type, profile)| proto::DeviceProfile {
        device_type: device_type.into(),
        profile: Some(pack_profile(profile)),
    });
    proto::Variant {
        id: variant.id.into(),
        application: variant.application.into(),
        model: variant.model.into(),
        spec: Some(pack_spec(variant.spec)),
        artefact: variant.artefact.as_bytes().to_vec().into(),
        signature: Some(pack_signature(variant.signature)),
        padding: variant.padding.map(pack_padding),
        accuracy: Some(pack_accuracy(&variant.accuracy)),
        profile: Some(pack_profile(variant.profile)),
        measured_on: variant.measured_on.map(Into::into),
        profiles: profiles.collect(),
        cost_per_hour_usd: variant.cost_per_hour_usd,
        cost_per_1k_usd: variant.cost_per_1k_usd,
        dominated_by: variant.dominated_by.map(Into::into),
        apart: variant.apart,
        resources: Some(pack_resources(&variant.resources)),
        foreign: variant.foreign,
    }
}

pub(super) fn unpack(variant: proto::Variant) -> Result<Variant, MalformedFrame> {
    let mut profiles = BTreeMap::new();
    for on in variant.profiles {
        let profile = unpack_profile(field(on.profile, "profile")?)?;
        profiles.insert(DeviceTypeName::new(on.device_type)?, profile);
    }
    let artefact = <[u8; 32]>::try_from(variant.artefact.as_ref());
    Ok(Variant {
        id: VariantId::new(variant.id)?,
        application: ApplicationId::new(variant.application)?,
        model: ModelId::new(variant.model)?,
        spec: unpack_spec(field(variant.spec, "spec")?)?,
        artefact: Digest::from_bytes(field(artefact.ok(), "artefact")?),
        signature: unpack_signature(field(variant.signature, "signature")?)?,
        padding: variant.padding.map(unpack_padding).transpose()?,
        accuracy: unpack_accuracy(&field(variant.accuracy, "accuracy")?)?,
        profile: unpack_profile(field(variant.profile, "profile")?)?,
        measured_on: variant.measured_on.map(DeviceTypeName::new).transpose()?,
        profiles,
        cost_per_hour_usd: variant.cost_per_hour_usd,
        cost_per_1k_usd: variant.cost_per_1k_usd,
        dominated_by: variant.dominated_by.map(VariantId::new).transpose()?,
        apart: variant.apart,
        resources: unpack_resources(&field(variant.resources, "resources")?)?,
        // Only the dispatcher knows the stages: a worker runs what it is told to.
        release: Release::default(),
        foreign: variant.foreign,
    })
}

fn narrow<T: TryFrom<u32>>(value: u32, name: &'static str) -> Result<T, MalformedFrame> {
    field(T::try_from(value).ok(), name)
}

fn pack_spec(spec: VariantSpec) -> proto::VariantSpec {
    proto::VariantSpec {
        engine: spec.engine.0,
        precision: precision(spec.precision).into(),
        optimization: optimization(spec.optimization).into(),
        threads: spec.threads.into(),
        max_batch: spec.max_batch.into(),
    }
}

fn unpack_spec(spec: proto::VariantSpec) -> Result<VariantSpec, MalformedFrame> {
    let precision = match spec.precision() {
        proto::Precision::Unspecified => return Err(MalformedFrame::Field("precision")),
        proto::Precision::Fp32 => Precision::Fp32,
        proto::Precision::Tf32 => Precision::Tf32,
        proto::Precision::Fp16 => Precision::Fp16,
        proto::Precision::Bf16 => Precision::Bf16,
        proto::Precision::Int8Dynamic => Precision::Int8Dynamic,
        proto::Precision::Int8Static => Precision::Int8Static,
        proto::Precision::Int8Weights => Precision::Int8Weights,
        proto::Precision::Int4Weights => Precision::Int4Weights,
    };
    let optimization = match spec.optimization() {
        proto::Optimization::Unspecified => return Err(MalformedFrame::Field("optimization")),
        proto::Optimization::Basic => Optimization::Basic,
        proto::Optimization::All => Optimization::All,
    };
    Ok(VariantSpec {
        engine: EngineName(spec.engine),
        precision,
        optimization,
        threads: narrow(spec.threads, "threads")?,
        max_batch: narrow(spec.max_batch, "max_batch")?,
    })
}

fn precision(precision: Precision) -> proto::Precision {
    match precision {
        Precision::Fp32 => proto::Precision::Fp32,
        Precision::Tf32 => proto::Precision::Tf32,
        Precision::Fp16 => proto::Precision::Fp16,
        Precision::Bf16 => proto::Precision::Bf16,
        Precision::Int8Dynamic => proto::Precision::Int8Dynamic,
        Precision::Int8Static => proto::Precision::Int8Static,
        Precision::Int8Weights => proto::Precision::Int8Weights,
        Precision::Int4Weights => proto::Precision::Int4Weights,
    }
}

fn optimization(optimization: Optimization) -> proto::Optimization {
    match optimization {
        Optimization::Basic => proto::Optimization::Basic,
        Optimization::All => proto::Optimization::All,
    }
}

fn pack_signature(signature: Signature) -> proto::Signature {
    let specs = |specs: Vec<TensorSpec>| specs.into_iter().map(pack_tensor_spec).collect();
    proto::Signature {
        inputs: specs(signature.inputs),
        outputs: specs(signature.outputs),
        batched: signature.batched,
    }
}

fn unpack_signature(signature: proto::Signature) -> Result<Signature, MalformedFrame> {
    let specs = |specs: Vec<proto::TensorSpec>| {
        let specs = specs.into_iter();
        specs.map(unpack_tensor_spec).collect::<Result<_, _>>()
    };
    Ok(Signature {
        inputs: specs(signature.inputs)?,
        outputs: specs(signature.outputs)?,
        batched: signature.batched,
    })
}

fn pack_tensor_spec(spec: TensorSpec) -> proto::TensorSpec {
    let shape = spec.shape.into_iter();
    proto::TensorSpec {
        name: spec.name,
        data_type: data_type(spec.data_type).into(),
        shape: shape.map(|size| proto::Dimension { size }).collect(),
    }
}

fn unpack_tensor_spec(spec: proto::TensorSpec) -> Result<TensorSpec, MalformedFrame> {
    Ok(TensorSpec {
        name: spec.name,
        data_type: read_data_type(spec.data_type)?,
        shape: spec.shape.into_iter().map(|dim| dim.size).collect(),
    })
}

fn pack_padding(padding: Padding) -> proto::Padding {
    let values = padding.values.into_iter();
    let cropped = padding.cropped.into_iter();
    proto::Padding {
        mask: padding.mask,
        values: values
            .map(|(input, value)| proto::PaddingValue { input, value })
            .collect(),
        cropped: cropped
            .map(|it| proto::OutputAxis {
                output: it.output as u64,
                axis: it.axis as u64,
            })
            .collect(),
    }
}

fn unpack_padding(padding: proto::Padding) -> Result<Padding, MalformedFrame> {
    let index = |at: u64| field(usize::try_from(at).ok(), "cropped");
    let values = padding.values.into_iter();
    let cropped = padding.cropped.into_iter().map(|it| {
        Ok(OutputAxis {
            output: index(it.output)?,
            axis: index(it.axis)?,
        })
    });
    Ok(Padding {
        mask: padding.mask,
        values: values.map(|it| (it.input, it.value)).collect(),
        cropped: cropped.collect::<Result<_, MalformedFrame>>()?,
    })
}

fn pack_accuracy(accuracy: &Accuracy) -> proto::Accuracy {
    proto::Accuracy {
        metric: accuracy.metric.name(),
        value: accuracy.value,
        lower: accuracy.lower,
        upper: accuracy.upper,
        records: accuracy.records,
        evaluation_batch: accuracy.evaluation_batch,
        kind: accuracy.kind.name().to_owned(),
    }
}

fn unpack_accuracy(accuracy: &proto::Accuracy) -> Result<Accuracy, MalformedFrame> {
    Ok(Accuracy {
        kind: unpack_kind(&accuracy.kind)?,
        metric: field(Metric::parse(&accuracy.metric), "metric")?,
        value: accuracy.value,
        lower: accuracy.lower,
        upper: accuracy.upper,
        records: accuracy.records,
        evaluation_batch: accuracy.evaluation_batch,
    })
}

/// Messages of an earlier version have no kind.
pub(super) fn unpack_kind(name: &str) -> Result<AccuracyKind, MalformedFrame> {
    match name {
        "" => Ok(AccuracyKind::Unknown),
        name => field(AccuracyKind::parse(name), "kind"),
    }
}

fn pack_profile(profile: Profile) -> proto::Profile {
    let shapes = profile.sizes.shapes.into_iter();
    let concurrent = profile.concurrent.into_iter();
    proto::Profile {
        load_ms: profile.load_ms,
        first_load_ms: profile.first_load_ms,
        batches: pack_batches(profile.batches),
        alpha_ms: profile.alpha_ms,
        beta_ms: profile.beta_ms,
        residual_ms: profile.residual_ms,
        saturation_rps: profile.saturation_rps,
        peak_memory_bytes: profile.peak_memory_bytes,
        weights_bytes: profile.weights_bytes,
        dims: profile.sizes.dims,
        shapes: shapes
            .map(|shape| proto::ShapeProfile {
                dims: shape.dims,
                batches: pack_batches(shape.batches),
            })
            .collect(),
        longest: profile.sizes.longest,
        concurrent: concurrent
            .map(|of| proto::Concurrent {
                running: of.running.into(),
                mean_ms: of.mean_ms,
                scv: of.scv,
                samples: of.samples,
            })
            .collect(),
    }
}

fn unpack_profile(profile: proto::Profile) -> Result<Profile, MalformedFrame> {
    let shapes = profile.shapes.into_iter();
    let concurrent = profile.concurrent.into_iter().map(|of| {
        Ok(ConcurrentRun {
            running: narrow(of.running, "running")?,
            mean_ms: of.mean_ms,
            scv: of.scv,
            samples: of.samples,
        })
    });
    Ok(Profile {
        load_ms: profile.load_ms,
        first_load_ms: profile.first_load_ms,
        batches: unpack_batches(profile.batches),
        alpha_ms: profile.alpha_ms,
        beta_ms: profile.beta_ms,
        residual_ms: profile.residual_ms,
        saturation_rps: profile.saturation_rps,
        peak_memory_bytes: profile.peak_memory_bytes,
        weights_bytes: profile.weights_bytes,
        sizes: Sizes {
            dims: profile.dims,
            shapes: shapes
                .map(|shape| ShapeProfile {
                    dims: shape.dims,
                    batches: unpack_batches(shape.batches),
                })
                .collect(),
            longest: profile.longest,
        },
        concurrent: concurrent.collect::<Result<_, MalformedFrame>>()?,
    })
}

fn pack_batches(batches: Vec<BatchLatency>) -> Vec<proto::BatchLatency> {
    let pack = |point: BatchLatency| proto::BatchLatency {
        batch: point.batch,
        p50_ms: point.p50_ms,
        p99_ms: point.p99_ms,
        mean_ms: point.mean_ms,
        samples: point.samples,
    };
    batches.into_iter().map(pack).collect()
}

fn unpack_batches(batches: Vec<proto::BatchLatency>) -> Vec<BatchLatency> {
    let unpack = |point: proto::BatchLatency| BatchLatency {
        batch: point.batch,
        p50_ms: point.p50_ms,
        p99_ms: point.p99_ms,
        mean_ms: point.mean_ms,
        samples: point.samples,
    };
    batches.into_iter().map(unpack).collect()
}

fn pack_resources(resources: &Resources) -> proto::Resources {
    let isolation = match resources.isolation {
        None => proto::Isolation::Unspecified,
        Some(Isolation::Worker) => proto::Isolation::Worker,
        Some(Isolation::Process) => proto::Isolation::Process,
    };
    proto::Resources {
        budget_per_hour_usd: resources.budget_per_hour_usd,
        least_workers: resources.least_workers,
        most_workers: resources.most_workers,
        priority: resources.priority.map(Into::into),
        weight: resources.weight,
        cache_bytes: resources.cache_bytes,
        cache_ttl_s: resources.cache_ttl_s,
        isolation: isolation.into(),
    }
}

fn unpack_resources(resources: &proto::Resources) -> Result<Resources, MalformedFrame> {
    let isolation = match resources.isolation() {
        proto::Isolation::Unspecified => None,
        proto::Isolation::Worker => Some(Isolation::Worker),
        proto::Isolation::Process => Some(Isolation::Process),
    };
    let priority = resources.priority.map(|it| narrow(it, "priority"));
    Ok(Resources {
        budget_per_hour_usd: resources.budget_per_hour_usd,
        least_workers: resources.least_workers,
        most_workers: resources.most_workers,
        priority: priority.transpose()?,
        weight: resources.weight,
        cache_bytes: resources.cache_bytes,
        cache_ttl_s: resources.cache_ttl_s,
        isolation,
    })
}
