//! `/v1/applications`: the metric of an application, the default targets of its queries, and its limits in the fleet.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use sextant_pipeline::Definition;
use sextant_registry::{Application, KeyScope};
use sextant_types::{ApplicationId, Code, Metric, Route};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Caller,
    extract::{Name, Params},
    feedback::{online, settings::SettingsBody},
    json,
    page::PageParams,
    precondition::TaggedDocument,
    problem::{Problem, ProblemBody},
    resources::ResourcesBody,
    signature::SignatureBody,
    targets::TargetsBody,
};

mod change;
mod presets;

use change::ApplicationChangeBody;
use presets::Presets;

/// An application to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewApplication)]
pub struct NewApplicationBody {
    /// 1 to 128 of `a-z 0-9 - _ .`.
    #[schema(example = "digits")]
    name: String,
    /// How accuracy is measured: `top1`, `top5` (any k from 2), `exact`, `f1`, `f1_micro`, `f1_multilabel`,
    /// `auc`, `log_loss`, `mae`, `rmse`, `mape`, `r2`, `cosine`, `token_accuracy`, `iou`, `map` or `custom`.
    #[schema(example = "top1")]
    metric: String,
    /// For people.
    #[serde(default, deserialize_with = "json::or_default")]
    description: String,
    /// Targets of queries that state none.
    #[serde(default, deserialize_with = "json::or_default")]
    default_targets: TargetsBody,
    /// Targets by name: queries ask for them with `preset`.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = BTreeMap<String, TargetsBody>, example = json!({"fast": {"latency_ms": 5.0}}))]
    presets: Presets,
    /// What it may use of the fleet; setting it needs the scope `admin`.
    #[serde(default, deserialize_with = "json::or_default")]
    resources: ResourcesBody,
    /// Its settings of feedback; if they are left out, it takes none.
    #[serde(default)]
    feedback: Option<SettingsBody>,
}

/// An application.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Application)]
pub struct ApplicationBody {
    /// Its name.
    name: String,
    /// How accuracy is measured.
    metric: String,
    /// For people.
    description: String,
    /// Targets of queries that state none.
    default_targets: TargetsBody,
    /// Targets by name: queries ask for them with `preset`. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    presets: BTreeMap<String, TargetsBody>,
    /// Inputs and outputs of all its models; absent until the first model fixes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<SignatureBody>,
    /// What it may use of the fleet; absent if nothing is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourcesBody>,
    /// Its settings of feedback; absent if it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    feedback: Option<SettingsBody>,
    /// What feedback says of its models; only in the answer for a single application, if there is feedback.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    online: Vec<online::ModelBody>,
}

/// All applications.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Applications)]
pub struct ApplicationsBody {
    /// Sorted by name.
    applications: Vec<ApplicationBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Creates an application. Sending the same settings again is no error.
#[utoipa::path(post, operation_id = "applications_create", path = "/v1/applications", tag = "applications",
    request_body = NewApplicationBody,
    responses(
        (status = 201, description = "Created", body = ApplicationBody),
        (status = 200, description = "It exists with the same settings", body = ApplicationBody),
        (status = 409, description = "It exists with other settings", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let bytes = state.collect_document(request.into_body()).await?;
    let application = json::owned::<NewApplicationBody>(&bytes)?.read()?;
    check_resources(&caller, &application, "set")?;
    let created = state.registry().create_application(&application).await?;
    state.refresh_application(&application.id).await?;
    let location = format!("/v1/applications/{}", application.id);
    let stored = state.registry().application(&application.id).await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = Json(ApplicationBody::from(stored));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// All applications.
#[utoipa::path(get, operation_id = "applications_list", path = "/v1/applications", tag = "applications",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most applications; all if left out",
            minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by name", body = ApplicationsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Json<ApplicationsBody>, Problem> {
    let applications = state.registry().applications().await?;
    let seen = applications
        .into_iter()
        .filter(|application| caller.sees(&application.id));
    let page = params.cut(seen, |application| application.id.to_string())?;
    let applications = page.items.into_iter().map(ApplicationBody::from).collect();
    let next = page.next;
    Ok(Json(ApplicationsBody { applications, next }))
}

/// One application.
#[utoipa::path(get, operation_id = "applications_get", path = "/v1/applications/{application}", tag = "applications",
    params(("application" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "The application", body = ApplicationBody,
            headers(("etag" = String, description = "changes when the application does"))),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let application = state.registry().application(&name).await;
    let mut application = application
        .map_err(|error| state.with_suggestion(&caller, &Route::Application(name), error.into()))?;
    // The tag covers what the registry has: a change is compared with that.
    let tag = TaggedDocument::new(&ApplicationBody::from(application.clone())).tag();
    // The inputs and outputs of a pipeline follow from its steps.
    let pipeline = state.pipelines().get(&application.id);
    let graph = pipeline.as_ref().and_then(|pipeline| pipeline.graph().ok());
    application.signature = graph
        .map(|graph| graph.signature.clone())
        .or(application.signature);
    let said = online::of_application(&state, &application.id, application.metric).await?;
    let mut body = ApplicationBody::from(application);
    body.online = said;
    Ok(TaggedDocument::new(&body).tagged(tag).answer(&headers))
}

/// Changes an application: its description, default targets, presets, resources, and its metric if no
/// model has been measured by it. Changing the resources needs the scope `admin`. Members that are left
/// out stay as they are, and `null` removes a value. The other processes know the change moments later.
/// If a change was interrupted, send it again to complete it.
#[utoipa::path(patch, operation_id = "applications_change", path = "/v1/applications/{application}", tag = "applications",
    params(
        ("application" = String, Path, description = "its name"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    request_body = ApplicationChangeBody,
    responses(
        (status = 200, description = "Its present state", body = ApplicationBody,
            headers(("etag" = String, description = "changes when the application does"))),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "It has models, which were measured by its metric", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn change(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = state.collect_document(body).await?;
    let change = json::owned::<ApplicationChangeBody>(&bytes)?;
    let moves_resources = change.moves_resources();
    if moves_resources && !caller.has(KeyScope::Admin) {
        return Err(needs_admin("change"));
    }
    let is_measured = change.moves_metric() && is_measured(&state, &name).await?;
    let changed = state.registry().change_application(&name, |known| {
        TaggedDocument::new(&ApplicationBody::from(known.clone())).check(&parts.headers)?;
        let was = known.metric;
        let changed = change.apply(known)?;
        match is_measured && changed.metric != was {
            true => Err(measured_by_definition()),
            false => Ok(changed),
        }
    });
    let changed = changed.await??;
    if moves_resources {
        state.publisher().show_application(&name).await?;
    }
    state.refresh_application(&name).await?;
    Ok(TaggedDocument::new(&ApplicationBody::from(changed)).with(StatusCode::OK))
}

/// Deletes an application that has no models. If its resources are set, this needs the scope `admin`.
#[utoipa::path(delete, operation_id = "applications_delete", path = "/v1/applications/{application}", tag = "applications",
    params(
        ("application" = String, Path, description = "its name"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "It has models or unfinished jobs", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn delete(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let deleted = state.registry().delete_application(&name, |known| {
        TaggedDocument::new(&ApplicationBody::from(known.clone())).check(&headers)?;
        check_resources(&caller, known, "take back")
    });
    deleted.await??;
    state.refresh_application(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether it is a pipeline that is measured as a whole.
async fn is_measured(state: &ApiState, name: &ApplicationId) -> Result<bool, Problem> {
    match state.registry().pipeline(name).await {
        Ok(pipeline) => {
            let definition = Definition::deserialize(&pipeline.definition);
            Ok(definition.is_ok_and(|it| it.is_measured()))
        }
        Err(sextant_registry::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn measured_by_definition() -> Problem {
    let detail = "it is a pipeline, which was measured by its metric: change `metric` of `validation` in its definition";
    Problem::new(Code::InUse, detail).field("metric")
}

/// The metric that an application has from now on: its own, unless another one is wanted.
///
/// # Errors
/// When its targets or presets would say something else in terms of that metric.
pub(crate) async fn next_metric(
    state: &ApiState,
    name: &ApplicationId,
    wanted: Option<Metric>,
) -> Result<Metric, Problem> {
    let of = state.registry().application(name).await?;
    let metric = wanted.unwrap_or(of.metric);
    TargetsBody::show(&of.default_targets, of.metric).suits(metric)?;
    presets::suit(&of.presets, of.metric, metric)?;
    Ok(metric)
}

/// Refuses a caller without the scope `admin` if resources are set: an application's owner does not decide on its
/// budget.
pub(crate) fn check_resources(
    caller: &Caller,
    of: &Application,
    what: &str,
) -> Result<(), Problem> {
    if of.resources.is_default() || caller.has(KeyScope::Admin) {
        return Ok(());
    }
    Err(needs_admin(what))
}

fn needs_admin(what: &str) -> Problem {
    let detail = format!("the key lacks the scope `admin`, which it takes to {what} `resources`");
    Problem::new(Code::Forbidden, detail)
}

/// The metric with a name.
fn metric(name: &str) -> Result<Metric, Problem> {
    Metric::parse(name).ok_or_else(|| {
        let given = crate::codec::short(name);
        let detail = format!("there is no metric `{given}`: use {}", Metric::names());
        Problem::new(Code::InvalidRequest, detail).field("metric")
    })
}

// === impl NewApplicationBody ===

impl NewApplicationBody {
    fn read(self) -> Result<Application, Problem> {
        let metric = metric(&self.metric)?;
        self.default_targets.suits(metric)?;
        Ok(Application {
            id: ApplicationId::new(self.name)?,
            metric,
            description: self.description,
            default_targets: self.default_targets.read()?,
            signature: None,
            resources: self.resources.read()?,
            presets: presets::read(self.presets, metric)?,
            feedback: self.feedback.map(SettingsBody::read).transpose()?,
        })
    }
}

impl From<Application> for ApplicationBody {
    fn from(application: Application) -> Self {
        Self {
            name: application.id.to_string(),
            metric: application.metric.name(),
            description: application.description,
            default_targets: TargetsBody::show(&application.default_targets, application.metric),
            presets: presets::show(&application.presets, application.metric),
            signature: application.signature.as_ref().map(SignatureBody::from),
            resources: ResourcesBody::show(&application.resources),
            feedback: application.feedback.as_ref().map(SettingsBody::show),
            online: Vec::new(),
        }
    }
}
