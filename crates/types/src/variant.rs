//! A variant: one way to run a registered model.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    Accuracy, ApplicationId, DeviceType, DeviceTypeName, Digest, ModelId, Padding, Profile,
    Quality, Release, Resources, Signature, VariantId, share_of,
};

/// An engine's short name as it appears in variant ids: `ort`, `rten`, `emulated`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineName(pub String);

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number format of weights and arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As registered.
    Fp32,
    /// 32-bit weights, matrix products on tensor cores with 10-bit mantissas.
    Tf32,
    /// Half precision weights and arithmetic.
    Fp16,
    /// 16-bit weights and arithmetic with the exponents of 32 bits.
    Bf16,
    /// 8-bit weights. Activation scales are computed for each batch.
    Int8Dynamic,
    /// 8-bit weights and activations. Scales are calibrated on the validation set (QDQ).
    Int8Static,
    /// 8-bit weights of large matrices, with a scale for each block. Everything else is as registered.
    Int8Weights,
    /// The same in 4 bits.
    Int4Weights,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 8] = [
        Self::Fp32,
        Self::Tf32,
        Self::Fp16,
        Self::Bf16,
        Self::Int8Dynamic,
        Self::Int8Static,
        Self::Int8Weights,
        Self::Int4Weights,
    ];

    /// The inverse of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// `fp32`, `tf32`, `fp16`, `bf16`, `int8d`, `int8s`, `int8w`, `int4w`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Int8Dynamic => "int8d",
            Self::Int8Static => "int8s",
            Self::Int8Weights => "int8w",
            Self::Int4Weights => "int4w",
        }
    }
}

/// How far an engine rewrites the graph before it runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimization {
    /// Only what never depends on the hardware: constant folding, dead code.
    Basic,
    /// Everything the engine has: fusions, hardware-specific layouts.
    All,
}

impl Optimization {
    /// `basic`, `all`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::All => "all",
        }
    }
}

/// The parameters that distinguish the variants of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VariantSpec {
    /// The engine that runs it.
    pub engine: EngineName,
    /// Number format.
    pub precision: Precision,
    /// Graph optimisation.
    pub optimization: Optimization,
    /// Intra-op threads, at least 1.
    pub threads: u16,
    /// The most rows in one batch, at least 1.
    pub max_batch: u16,
}

impl VariantSpec {
    /// `ort-fp32-all-t1-b8`.
    pub fn name(&self) -> String {
        let Self {
            engine,
            precision,
            optimization,
            threads,
            max_batch,
        } = self;
        let (precision, optimization) = (precision.name(), optimization.name());
        format!("{engine}-{precision}-{optimization}-t{threads}-b{max_batch}")
    }
}

/// The reason why variants with dynamic scales keep queries apart.
const ONE_SCALE: &str = "activations have one scale for all rows of a batch";

/// A measured variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Unique name, `{model}-{spec}`.
    pub id: VariantId,
    /// The application it answers for.
    pub application: ApplicationId,
    /// The model it was made from.
    pub model: ModelId,
    /// The parameters.
    pub spec: VariantSpec,
    /// The ONNX file that the engine loads.
    pub artefact: Digest,
    /// Inputs and outputs.
    pub signature: Signature,
    /// How queries of different lengths share its batches; `None`: only those of equal sizes do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
    /// The accuracy that was measured on the validation set.
    pub accuracy: Accuracy,
    /// The profile that was measured at registration.
    pub profile: Profile,
    /// The type of device of that measurement; `None` if an earlier version registered the variant.
    #[serde(default)]
    pub measured_on: Option<DeviceTypeName>,
    /// Profiles that were measured on other types of devices later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<DeviceTypeName, Profile>,
    /// Price of the slots that a batch occupies where the variant was registered, US dollars an hour.
    pub cost_per_hour_usd: f64,
    /// Price of a thousand rows at saturation there, US dollars.
    pub cost_per_1k_usd: f64,
    /// A variant that runs on the same devices and is there at least as good in accuracy bound, latency, load time and
    /// cost, and better in one of them. Dominated variants are kept and listed, and are never loaded for targets.
    pub dominated_by: Option<VariantId>,
    /// Why it answers one query at a time, in words for people: queries that shared a batch would change each other's
    /// answers. `None`: queries share batches, as far as the signature allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// What its application may use of the fleet, at the time of publication. It is not set in the registry, where it
    /// belongs to the application.
    #[serde(default, skip_serializing_if = "Resources::is_default")]
    pub resources: Resources,
    /// The version of its model and the version's part in answering, at the time of publication. It is not set in the
    /// registry, where it belongs to the model.
    #[serde(default, skip_serializing_if = "Release::is_default")]
    pub release: Release,
    /// Whether its model was registered with a key that is not an administrator's, at the time of publication. It is
    /// not set in the registry, where it belongs to the model.
    #[serde(default, skip_serializing_if = "is_not")]
    pub foreign: bool,
}

fn is_not(value: &bool) -> bool {
    !value
}

/// A profile on a type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedProfile<'a> {
    /// The profile, measured there or not.
    pub profile: Cow<'a, Profile>,
    /// Whether it was measured on another type of device.
    pub estimated: bool,
}

impl Variant {
    /// Its quality, as targets are compared with it. `uploaded` is the quality of its model's uploaded file.
    pub fn quality(&self, uploaded: f64) -> Quality {
        let bound = self.accuracy.quality_bound();
        match self.accuracy.kind.is_accuracy() {
            true => Quality::Accuracy(bound),
            false => Quality::Agreement(share_of(bound, uploaded)),
        }
    }

    /// Latency of a lone query, ms (median of batch 1).
    pub fn latency_ms(&self) -> f64 {
        self.profile.latency_ms(1)
    }

    /// Whether queries share batches. A query of several rows is answered in one run in any case.
    pub fn shares_batches(&self) -> bool {
        self.signature.batched && self.why_apart().is_none()
    }

    /// Why queries do not share batches although the signature allows it. Activation scales that are computed for a
    /// whole batch are a reason in themselves, as with variants that earlier versions have registered.
    pub fn why_apart(&self) -> Option<&str> {
        let of_scales = match self.spec.precision {
            Precision::Int8Dynamic => Some(ONE_SCALE),
            _ => None,
        };
        self.apart.as_deref().or(of_scales)
    }

    /// The most rows of queries of one row in a run together.
    pub fn most_together(&self) -> u32 {
        match self.shares_batches() {
            true => u32::from(self.spec.max_batch.max(1)),
            false => 1,
        }
    }

    /// Makes it answer one query at a time from now on, for this reason. Saturation and the price of a thousand rows
    /// are set to those of lone queries.
    pub fn keep_apart(&mut self, reason: String) {
        self.apart = Some(reason);
        let before = self.profile.saturation_rps;
        self.profile.run_alone();
        let times = before / self.profile.saturation_rps;
        if times.is_finite() {
            self.cost_per_1k_usd *= times;
        }
        self.profiles.values_mut().for_each(Profile::run_alone);
    }

    /// Sets both costs from the price of the device on which the variant was registered.
    pub fn price(&mut self, device: &DeviceType) {
        let cost = device.cost(self.spec.threads, self.profile.saturation_rps);
        self.measured_on = Some(device.name.clone());
        self.cost_per_hour_usd = cost.per_hour_usd;
        self.cost_per_1k_usd = cost.per_1k_usd;
    }

    /// The profile measured on a type of device, if it was.
    pub fn measured(&self, on: &DeviceTypeName) -> Option<&Profile> {
        if self.measured_on.as_ref() == Some(on) {
            return Some(&self.profile);
        }
        self.profiles.get(on)
    }

    /// The expected profile on a type of device: the one that was measured there, else the one from registration with
    /// times multiplied by `factor`. [`crate::Slowdowns`] has the factors.
    pub fn expected(&self, on: &DeviceTypeName, factor: f64) -> ExpectedProfile<'_> {
        match self.measured(on) {
            Some(profile) => ExpectedProfile {
                profile: Cow::Borrowed(profile),
                estimated: false,
            },
            None => ExpectedProfile {
                profile: self.profile.slowed(factor),
                estimated: true,
            },
        }
    }
}

/// The variants of a model that are as accurate as its uploaded file: their measured accuracy lies within the interval
/// of the most accurate variant in single precision. Empty if there is no such variant.
pub fn as_uploaded<'a>(variants: &[&'a Variant]) -> Vec<&'a Variant> {
    let all = variants
        .iter()
        .map(|it| (it.spec.precision, &it.accuracy))
        .collect::<Vec<_>>();
    let Some(least) = uploaded_quality(&all) else {
        return Vec::new();
    };
    let variants = variants.iter().copied();
    variants
        .filter(|variant| variant.accuracy.quality() >= least)
        .collect()
}

/// The quality of the uploaded file of each model, on the scale of [`Accuracy::quality_bound`]: the bound of its most
/// accurate variant in single precision, or of its most accurate variant if there is none.
pub fn uploaded_qualities<'a>(
    variants: impl IntoIterator<Item = &'a Variant>,
) -> BTreeMap<&'a ModelId, f64> {
    let mut models: BTreeMap<&ModelId, Vec<(Precision, &Accuracy)>> = BTreeMap::new();
    for variant in variants {
        let of = models.entry(&variant.model).or_default();
        of.push((variant.spec.precision, &variant.accuracy));
    }
    let quality = |measured: &[_]| uploaded_quality(measured).unwrap_or_else(|| best(measured));
    let models = models.into_iter();
    models
        .map(|(model, measured)| (model, quality(&measured)))
        .collect()
}

/// The highest of the pessimistic ends.
fn best(measured: &[(Precision, &Accuracy)]) -> f64 {
    let bounds = measured.iter().map(|(_, it)| it.quality_bound());
    bounds.fold(f64::NEG_INFINITY, f64::max)
}

/// The least quality that counts as accurate as the uploaded file: the bound of the most accurate variant in single
/// precision.
pub fn uploaded_quality(measured: &[(Precision, &Accuracy)]) -> Option<f64> {
    let single = measured
        .iter()
        .filter(|(precision, _)| *precision == Precision::Fp32);
    let uploaded = single.max_by(|(_, a), (_, b)| a.quality().total_cmp(&b.quality()))?;
    Some(uploaded.1.quality_bound())
}
