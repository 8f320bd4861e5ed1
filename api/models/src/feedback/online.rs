//! The accuracy by feedback, beside the accuracy that was measured at registration.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_feedback::{Hour, Kind, Sums, online, rewarded};
use sextant_registry::{FeedbackAlarm, FeedbackSums};
use sextant_types::{
    Accuracy, ApplicationId, FeedbackSettings, Metric, ModelId, RewardDirection, VariantId,
    interval::Interval,
};
use utoipa::ToSchema;

use crate::{
    ApiState,
    extract::Name,
    problem::{Problem, ProblemBody},
};

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = OnlineFigure)]
pub struct FigureBody {
    /// The figure.
    value: f64,
    /// Lower end of its 95 % interval; `null` if there is only one row, from which no spread can be computed.
    #[schema(required)]
    lower: Option<f64>,
    /// Upper end.
    #[schema(required)]
    upper: Option<f64>,
    /// Rows that were scored.
    rows: u64,
}

/// What feedback says of something, beside what was measured at its registration.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = OnlineFigures)]
pub struct FiguresBody {
    /// The metric's value by labels; absent if none was scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<FigureBody>,
    /// The metric's value on the validation set; absent if the variant no longer exists. For a model it is
    /// the value of the variant with the most rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    registered: Option<FigureBody>,
    /// The mean reward; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<FigureBody>,
    /// The share of its comparisons in which it was preferred; absent if it was never compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred: Option<FigureBody>,
}

/// What feedback says of a model.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = OnlineModel)]
pub struct ModelBody {
    /// Its name.
    model: String,
    /// Its version; absent if models have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// Of all its variants.
    #[serde(flatten)]
    figures: FiguresBody,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<AlarmBody>,
    /// Each of its variants that has feedback, by name.
    variants: Vec<VariantBody>,
}

/// What feedback says of a variant.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = OnlineVariant)]
pub struct VariantBody {
    /// Its name.
    variant: String,
    /// Of it alone.
    #[serde(flatten)]
    figures: FiguresBody,
}

/// A model should be trained again.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = FeedbackAlarm)]
pub struct AlarmBody {
    /// `level`: it is worse than it was measured; `slope`: it becomes worse.
    kind: &'static str,
    /// What was seen over the last day: for `level`, the better end of the online interval; for `slope`, the
    /// change in a day.
    seen: f64,
    /// What it was compared with; for `level`, the worse end of the registered interval.
    limit: f64,
    /// Rows that it was seen in.
    rows: u64,
    /// Since when, milliseconds since the Unix epoch.
    since_ms: u64,
    /// When the message was sent to the application's webhook, milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    told_ms: Option<u64>,
}

/// What feedback says of an application's models.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = OnlineAccuracy)]
pub struct OnlineBody {
    /// Its name.
    application: String,
    /// How labels are scored.
    metric: String,
    /// Which rewards are better: `higher` or `lower`; absent if the application takes no feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<&'static str>,
    /// By model and version, those that have feedback.
    models: Vec<ModelBody>,
}

/// Shows the accuracy that results from feedback, by model and variant, beside the one measured at
/// registration, and the problems that were found.
#[utoipa::path(get, operation_id = "applications_accuracy", path = "/v1/applications/{application}/accuracy",
    tag = "feedback",
    params(("application" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "Over the time for which feedback is kept", body = OnlineBody),
        (status = 404, description = "There is no such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(name): Name<ApplicationId>,
) -> Result<Json<OnlineBody>, Problem> {
    let application = state.registry().application(&name).await?;
    let models = of_application(&state, &name, application.metric).await?;
    Ok(Json(OnlineBody {
        application: name.to_string(),
        metric: application.metric.name(),
        reward: application.feedback.as_ref().map(direction),
        models,
    }))
}

fn direction(settings: &FeedbackSettings) -> &'static str {
    match settings.reward {
        RewardDirection::Higher => "higher",
        RewardDirection::Lower => "lower",
    }
}

/// The accuracy by feedback of each model of an application.
pub async fn of_application(
    state: &ApiState,
    application: &ApplicationId,
    metric: Metric,
) -> Result<Vec<ModelBody>, Problem> {
    let sums = state.registry().feedback_sums(application).await?;
    if sums.is_empty() {
        return Ok(Vec::new());
    }
    let alarms = state.registry().feedback_alarms(application).await?;
    let variants = state.metadata().variants().await?;
    let registered = variants.iter().filter(|it| it.application == *application);
    let registered = registered.map(|it| (it.id.clone(), it.accuracy)).collect();
    let of = |(key, model): (&(ModelId, u32), &ModelSums)| {
        let alarms = alarms.iter().filter(|alarm| alarm.model == key.0);
        model.body(key, (metric, &registered), alarms)
    };
    Ok(by_model(&sums).iter().map(of).collect())
}

/// The accuracy by feedback of the model with an id; `None` if there was no feedback.
pub async fn of_model(
    state: &ApiState,
    application: &ApplicationId,
    model: &ModelId,
) -> Result<Option<ModelBody>, Problem> {
    let Some(metric) = state.metric(application) else {
        return Ok(None);
    };
    let models = of_application(state, application, metric).await?;
    let latest = models.into_iter().rev();
    Ok(latest.into_iter().find(|it| it.model == model.as_str()))
}

/// The sums of one model.
#[derive(Debug, Default)]
pub(super) struct ModelSums {
    pub(super) variants: BTreeMap<VariantId, BTreeMap<Kind, Sums>>,
    /// The sums of labels by hour, in order.
    pub(super) hours: Vec<Hour>,
}

/// Accuracies that were measured at registration, by variant.
pub(super) type RegisteredAccuracies = BTreeMap<VariantId, Accuracy>;

/// The sums by model and version.
pub(super) fn by_model(sums: &[FeedbackSums]) -> BTreeMap<(ModelId, u32), ModelSums> {
    let mut models: BTreeMap<(ModelId, u32), ModelSums> = BTreeMap::new();
    let mut hours: BTreeMap<(ModelId, u32), BTreeMap<u64, Sums>> = BTreeMap::new();
    for row in sums {
        let key = (row.model.clone(), row.version);
        if row.kind == Kind::Label {
            let of_model = hours.entry(key.clone()).or_default();
            of_model.entry(row.hour).or_default().merge(row.sums);
        }
        let variants = &mut models.entry(key).or_default().variants;
        let kinds = variants.entry(row.variant.clone()).or_default();
        kinds.entry(row.kind).or_default().merge(row.sums);
    }
    for (key, of_model) in hours {
        let hours = of_model.into_iter().map(|(hour, sums)| Hour { hour, sums });
        models.entry(key).or_default().hours = hours.collect();
    }
    models
}

// === impl ModelSums ===

impl ModelSums {
    /// The registered accuracy of the variant with the most scored rows.
    pub(super) fn registered(&self, known: &RegisteredAccuracies) -> Option<Accuracy> {
        let rows = |kinds: &BTreeMap<Kind, Sums>| kinds.get(&Kind::Label).map_or(0, |it| it.rows);
        let measured = self.variants.iter();
        let measured = measured.filter_map(|(id, kinds)| Some((rows(kinds), *known.get(id)?)));
        measured.max_by_key(|(rows, _)| *rows).map(|(_, it)| it)
    }

    fn body<'a>(
        &self,
        (model, version): &(ModelId, u32),
        (metric, known): (Metric, &RegisteredAccuracies),
        alarms: impl Iterator<Item = &'a FeedbackAlarm>,
    ) -> ModelBody {
        let mut all: BTreeMap<Kind, Sums> = BTreeMap::new();
        for (kind, sums) in self.variants.values().flatten() {
            all.entry(*kind).or_default().merge(*sums);
        }
        let variant = |(id, kinds): (&VariantId, &BTreeMap<Kind, Sums>)| VariantBody {
            variant: id.to_string(),
            figures: FiguresBody::new(metric, kinds, known.get(id).copied()),
        };
        ModelBody {
            model: model.to_string(),
            version: Some(*version).filter(|version| *version > 0),
            figures: FiguresBody::new(metric, &all, self.registered(known)),
            alarms: alarms.map(AlarmBody::from).collect(),
            variants: self.variants.iter().map(variant).collect(),
        }
    }
}

// === impl FiguresBody ===

impl FiguresBody {
    fn new(metric: Metric, kinds: &BTreeMap<Kind, Sums>, registered: Option<Accuracy>) -> Self {
        let of = |kind| kinds.get(&kind).copied().unwrap_or_default();
        let (labels, rewards, preferences) =
            (of(Kind::Label), of(Kind::Reward), of(Kind::Preference));
        let figure = |sums: Sums, interval| FigureBody::new(interval, sums.rows);
        Self {
            online: online(metric, labels).map(|it| figure(labels, it)),
            registered: registered.map(|it| {
                let interval = Interval {
                    value: it.value,
                    lower: it.lower,
                    upper: it.upper,
                };
                FigureBody::new(interval, it.records)
            }),
            reward: rewarded(rewards).map(|it| figure(rewards, it)),
            preferred: rewarded(preferences).map(|it| figure(preferences, it)),
        }
    }
}

// === impl FigureBody ===

impl FigureBody {
    fn new(interval: Interval, rows: u64) -> Self {
        let finite = |end: f64| end.is_finite().then_some(end);
        Self {
            value: interval.value,
            lower: finite(interval.lower),
            upper: finite(interval.upper),
            rows,
        }
    }
}

impl From<&FeedbackAlarm> for AlarmBody {
    fn from(of: &FeedbackAlarm) -> Self {
        Self {
            kind: of.alarm.kind.name(),
            seen: of.alarm.seen,
            limit: of.alarm.limit,
            rows: of.alarm.rows,
            since_ms: of.since_ms,
            told_ms: of.told_ms,
        }
    }
}
