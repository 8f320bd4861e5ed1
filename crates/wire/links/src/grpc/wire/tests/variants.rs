//! Random variants: their inputs, outputs and costs.

use proptest::{collection::vec, option, prelude::*};
use sextant_types::{
    Accuracy, AccuracyKind, ApplicationId, BatchLatency, ConcurrentRun, DataType, DeviceTypeName,
    Digest, EngineName, Isolation, Metric, ModelId, Optimization, OutputAxis, Padding, Precision,
    Profile, Release, Resources, ShapeProfile, Signature, Sizes, TensorSpec, Variant, VariantSpec,
};

use super::messages::{figure, name, variant};

pub(super) fn profile() -> impl Strategy<Value = Profile> {
    let point = || {
        (any::<u32>(), figure(), any::<u32>()).prop_map(|(batch, ms, samples)| BatchLatency {
            batch,
            p50_ms: ms,
            p99_ms: 2.0 * ms,
            mean_ms: 1.5 * ms,
            samples,
        })
    };
    let points = move || vec(point(), 0..3);
    let shape = (vec(any::<u64>(), 0..2), points())
        .prop_map(|(dims, batches)| ShapeProfile { dims, batches });
    let sizes = (
        vec(any::<u64>(), 0..3),
        vec(shape, 0..2),
        any::<Option<u64>>(),
    );
    let concurrent =
        (any::<u16>(), figure(), any::<u32>()).prop_map(|(running, ms, samples)| ConcurrentRun {
            running,
            mean_ms: ms,
            scv: ms / 2.0,
            samples,
        });
    (
        points(),
        sizes,
        vec(concurrent, 0..3),
        figure(),
        any::<[u64; 2]>(),
    )
        .prop_map(
            |(batches, (dims, shapes, longest), concurrent, ms, [peak, weights])| Profile {
                load_ms: ms,
                first_load_ms: (peak % 2 == 0).then_some(ms + 5.0),
                batches,
                alpha_ms: ms + 1.0,
                beta_ms: ms + 2.0,
                residual_ms: ms + 3.0,
                saturation_rps: ms + 4.0,
                peak_memory_bytes: peak,
                weights_bytes: weights,
                sizes: Sizes {
                    dims,
                    shapes,
                    longest,
                },
                concurrent,
            },
        )
}

pub(super) fn signature() -> impl Strategy<Value = Signature> {
    let spec = || {
        let data_type = prop::sample::select(DataType::ALL.to_vec());
        (".{0,8}", data_type, vec(any::<Option<u64>>(), 0..3)).prop_map(
            |(name, data_type, shape)| TensorSpec {
                name,
                data_type,
                shape,
            },
        )
    };
    (vec(spec(), 0..3), vec(spec(), 0..3), any::<bool>()).prop_map(|(inputs, outputs, batched)| {
        Signature {
            inputs,
            outputs,
            batched,
        }
    })
}

pub(super) fn kind() -> impl Strategy<Value = AccuracyKind> {
    prop_oneof![
        Just(AccuracyKind::Accuracy),
        Just(AccuracyKind::Agreement),
        Just(AccuracyKind::Unknown),
    ]
}

pub(super) fn whole_variant() -> impl Strategy<Value = Variant> {
    let precision = prop::sample::select(vec![
        Precision::Fp32,
        Precision::Tf32,
        Precision::Fp16,
        Precision::Bf16,
        Precision::Int8Dynamic,
        Precision::Int8Static,
        Precision::Int8Weights,
        Precision::Int4Weights,
    ]);
    let optimization = prop::sample::select(vec![Optimization::Basic, Optimization::All]);
    let spec = (name(), precision, optimization, any::<[u16; 2]>()).prop_map(
        |(engine, precision, optimization, [threads, max_batch])| VariantSpec {
            engine: EngineName(engine),
            precision,
            optimization,
            threads,
            max_batch,
        },
    );
    let padding = (
        ".{0,8}",
        option::of((".{0,8}", figure())),
        any::<[usize; 2]>(),
    )
        .prop_map(|(mask, value, [output, axis])| Padding {
            mask,
            values: value.into_iter().collect(),
            cropped: vec![OutputAxis { output, axis }],
        });
    let metric = prop_oneof![
        Just(Metric::Top1),
        (2u32..9).prop_map(Metric::TopK),
        Just(Metric::Exact),
        Just(Metric::MeanAbsoluteError),
    ];
    let accuracy = (metric, figure(), any::<u64>(), any::<u32>(), kind()).prop_map(
        |(metric, value, records, evaluation_batch, kind)| Accuracy {
            kind,
            metric,
            value,
            lower: value - 1.0,
            upper: value + 1.0,
            records,
            evaluation_batch,
        },
    );
    let on = || Just("cpu-8").prop_map(|name| name.parse::<DeviceTypeName>().expect("a name"));
    let profiles = option::of((on(), profile()));
    let isolation = prop_oneof![Just(Isolation::Worker), Just(Isolation::Process)];
    let resources = (
        option::of(figure()),
        any::<u32>(),
        any::<Option<u32>>(),
        any::<Option<u8>>(),
        option::of(figure()),
        (any::<u64>(), any::<Option<u32>>(), option::of(isolation)),
    )
        .prop_map(
            |(budget_per_hour_usd, least_workers, most_workers, priority, weight, cache)| {
                Resources {
                    budget_per_hour_usd,
                    least_workers,
                    most_workers,
                    priority,
                    weight,
                    cache_bytes: cache.0,
                    cache_ttl_s: cache.1,
                    isolation: cache.2,
                }
            },
        );
    let names = (variant(), name(), name(), option::of(variant()));
    let measured = (accuracy, profile(), option::of(on()), profiles);
    let rest = (
        any::<[u8; 32]>(),
        figure(),
        resources,
        any::<Option<String>>(),
        any::<bool>(),
    );
    (
        names,
        spec,
        signature(),
        option::of(padding),
        measured,
        rest,
    )
        .prop_map(
            |(
                (id, application, model, dominated_by),
                spec,
                signature,
                padding,
                (accuracy, profile, measured_on, profiles),
                (digest, cost, resources, apart, foreign),
            )| Variant {
                id,
                application: ApplicationId::new(application).expect("a name"),
                model: ModelId::new(model).expect("a name"),
                spec,
                artefact: Digest::from_bytes(digest),
                signature,
                padding,
                accuracy,
                profile,
                measured_on,
                profiles: profiles.into_iter().collect(),
                cost_per_hour_usd: cost,
                cost_per_1k_usd: cost / 3.0,
                dominated_by,
                apart,
                resources,
                // Workers need not know it.
                release: Release::default(),
                foreign,
            },
        )
}
