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
    /// 8-bit weights; activation scales found for each batch.
    Int8Dynamic,
    /// 8-bit weights and activations; scales calibrated on the validation set (QDQ).
    Int8Static,
    /// 8-bit weights of large matrices, each block of them with a scale; everything else as registered.
    Int8Weights,
    /// The same in 4 bits.
    Int4Weights,
}

impl Precision {
    /// Every one of them.
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

/// The knobs that tell one variant of a model from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VariantSpec {
    /// Which engine runs it.
    pub engine: EngineName,
    /// Number format.
    pub precision: Precision,
    /// Graph optimisation.
    pub optimization: Optimization,
    /// Intra-op threads, at least 1.
    pub threads: u16,
    /// Most rows in one batch, at least 1.
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

/// Why variants with dynamic scales keep queries apart.
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
    /// The knobs.
    pub spec: VariantSpec,
    /// The ONNX file that the engine loads.
    pub artefact: Digest,
    /// Inputs and outputs.
    pub signature: Signature,
    /// How queries of different lengths share its batches; `None`: only those of equal sizes do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
    /// Measured on the validation set.
    pub accuracy: Accuracy,
    /// Measured once at registration.
    pub profile: Profile,
    /// The type of device that this was on; `None` where an earlier version registered the variant.
    #[serde(default)]
    pub measured_on: Option<DeviceTypeName>,
    /// Measured on other types of devices later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<DeviceTypeName, Profile>,
    /// Price of the slots that a batch occupies where it was registered, US dollars an hour.
    pub cost_per_hour_usd: f64,
    /// Price of a thousand rows at saturation there, US dollars.
    pub cost_per_1k_usd: f64,
    /// A variant that runs on the same devices and is there at least as good in accuracy bound,
    /// latency, load time and cost, and better in one of them. Dominated variants are kept, listed and never loaded for targets.
    pub dominated_by: Option<VariantId>,
    /// Why it answers one query at a time, in words for whoever reads them: queries that shared a batch would change each
    /// other's answers. `None`: queries share batches, as far as the signature lets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// What its application may use of the fleet, as of the publication; nothing is set in the registry,
    /// where it is the application's.
    #[serde(default, skip_serializing_if = "Resources::is_default")]
    pub resources: Resources,
    /// Which version its model is, and which part that has in answering, as of the publication; nothing is set in the
    /// registry, where it is the model's.
    #[serde(default, skip_serializing_if = "Release::is_default")]
    pub release: Release,
    /// Whether its model was registered with a key that is no administrator's, as of the publication; not set in the
    /// registry, where it is the model's.
    #[serde(default, skip_serializing_if = "is_not")]
    pub foreign: bool,
}

fn is_not(value: &bool) -> bool {
    !value
}

/// A profile on a type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedProfile<'a> {
    /// Measured there or not.
    pub profile: Cow<'a, Profile>,
    /// It was measured on another type of device.
    pub estimated: bool,
}

impl Variant {
    /// Its quality as targets are compared with it; `uploaded` is that of its model's file as it was uploaded.
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

    /// Why they do not where the signature would let them. Scales of activations that are found for a whole batch are a
    /// reason by themselves, as of variants that earlier versions have registered.
    pub fn why_apart(&self) -> Option<&str> {
        let of_scales = match self.spec.precision {
            Precision::Int8Dynamic => Some(ONE_SCALE),
            _ => None,
        };
        self.apart.as_deref().or(of_scales)
    }

    /// Most rows that queries of one row have in a run together.
    pub fn most_together(&self) -> u32 {
        match self.shares_batches() {
            true => u32::from(self.spec.max_batch.max(1)),
            false => 1,
        }
    }

    /// Answers one query at a time from now on, for this reason. Saturation and the price of a thousand rows become those
    /// of lone queries.
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

    /// Fills both costs by the price of the device that the variant was registered on.
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

    /// What to expect on a type of device: what was measured there, else what was measured at
    /// registration with times `factor` times as long. [`crate::Slowdowns`] has the factors.
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

/// Those variants of a model that are as accurate as its file was uploaded: their measured accuracy lies within the
/// interval of the most accurate variant in single precision. None where there is no such variant.
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
/// accurate variant in single precision, or where there is none of the most accurate.
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

/// The highest pessimistic end.
fn best(measured: &[(Precision, &Accuracy)]) -> f64 {
    let bounds = measured.iter().map(|(_, it)| it.quality_bound());
    bounds.fold(f64::NEG_INFINITY, f64::max)
}

/// The least quality of what is as accurate as the uploaded file: the bound of the most accurate in single
/// precision.
pub fn uploaded_quality(measured: &[(Precision, &Accuracy)]) -> Option<f64> {
    let single = measured
        .iter()
        .filter(|(precision, _)| *precision == Precision::Fp32);
    let uploaded = single.max_by(|(_, a), (_, b)| a.quality().total_cmp(&b.quality()))?;
    Some(uploaded.1.quality_bound())
}
