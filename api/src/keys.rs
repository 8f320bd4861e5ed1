//! `/v1/keys`: who may ask, for what, and how often.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use sextant_registry::{ApiKey, KeyScope, NewKey};
use sextant_types::{ApplicationId, Code, time::unix_ms};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::{Mode, Secret},
    codec::short,
    extract::Params,
    json,
    page::PageParams,
    precondition::TaggedDocument,
    problem::{Problem, ProblemBody},
};

/// Longest name of a key, characters.
const MAX_NAME_CHARS: usize = 200;

/// A key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub struct NewKeyBody {
    /// For people.
    #[schema(example = "camera-7")]
    name: String,
    /// What the key allows: `query`, `register`, `python` (pipelines with steps in Python, together with
    /// `register`), `admin`. Every key allows reading; `admin` allows everything.
    #[schema(example = json!(["query"]))]
    scopes: Vec<String>,
    /// The only application for which the key is valid; if it is left out, all applications.
    #[serde(default)]
    application: Option<String>,
    /// Requests a second in the long run; no limit if it is left out.
    #[serde(default)]
    rate_per_s: Option<f64>,
    /// Requests at once after a pause; if it is left out, the requests of a second.
    #[serde(default)]
    burst: Option<u64>,
    /// Requests a day, which begins at midnight UTC; no limit if it is left out.
    #[serde(default)]
    quota_per_day: Option<u64>,
    /// Time from which on the key is refused, milliseconds since the Unix epoch; if it is left out, the key
    /// never expires.
    #[serde(default)]
    expires_ms: Option<u64>,
}

/// A key. Its secret is shown only in the response that created it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyBody {
    /// Its public name.
    id: String,
    /// For people.
    name: String,
    /// What it allows.
    scopes: Vec<&'static str>,
    /// The only application for which the key is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// Requests a second in the long run.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_s: Option<f64>,
    /// Requests at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    /// Requests a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_per_day: Option<u64>,
    /// When it was created, milliseconds since the Unix epoch.
    created_ms: u64,
    /// Time from which on the key is refused, milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    /// When it was revoked, milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_ms: Option<u64>,
}

/// A newly created key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CreatedKey)]
pub struct CreatedKeyBody {
    /// The key itself. The service does not keep it and cannot show it again.
    secret: String,
    /// Whether this service needs keys: not if `auth.mode` is `off`.
    enforced: bool,
    /// What it allows.
    key: KeyBody,
}

/// Keys.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Keys)]
pub struct KeysBody {
    /// Oldest first, including revoked and expired ones.
    keys: Vec<KeyBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Creates a key. Other front ends know it within a second.
#[utoipa::path(post, operation_id = "keys_create", path = "/v1/keys", tag = "keys",
    request_body = NewKeyBody,
    responses(
        (status = 201, description = "Created; the secret is not shown again",
            body = CreatedKeyBody),
        (status = 400, description = "It makes no sense", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let bytes = state.collect_document(request.into_body()).await?;
    let body: NewKeyBody = json::owned(&bytes)?;
    let secret = Secret::generate().map_err(|error| Problem::internal("a key", &error))?;
    let now_ms = unix_ms();
    let new = body.read(&secret, now_ms)?;
    if let Some(application) = &new.application {
        // A key for an application that does not exist would open nothing.
        state.registry().application(application).await?;
    }
    let key = state.registry().create_key(&new, now_ms).await?;
    state.refresh_keys().await?;
    let location = format!("/v1/keys/{}", key.id);
    let body = Json(CreatedKeyBody {
        secret: secret.reveal(),
        enforced: state.auth().mode == Mode::Keys,
        key: key.into(),
    });
    let headers = [(header::LOCATION, location)];
    let mut response = (StatusCode::CREATED, headers, body).into_response();
    let secret = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, secret);
    Ok(response)
}

/// All keys.
#[utoipa::path(get, operation_id = "keys_list", path = "/v1/keys", tag = "keys",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most keys; all if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Oldest first", body = KeysBody)))]
pub async fn list(
    State(state): State<ApiState>,
    Params(params): Params<PageParams>,
) -> Result<Json<KeysBody>, Problem> {
    let keys = state.registry().keys().await?;
    // The place in the list: keys are ordered by the time of creation, then by id.
    let place = |key: &ApiKey| format!("{:013}-{}", key.created_ms, key.id);
    let page = params.cut(keys, place)?;
    let keys = page.items.into_iter().map(KeyBody::from).collect();
    let next = page.next;
    Ok(Json(KeysBody { keys, next }))
}

/// A key in its present state.
#[utoipa::path(get, operation_id = "keys_get", path = "/v1/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "its id")),
    responses(
        (status = 200, description = "The key; its secret is not shown", body = KeyBody,
            headers(("etag" = String, description = "changes when the key does"))),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = state.registry().key(&id).await?;
    Ok(TaggedDocument::new(&KeyBody::from(key)).answer(&headers))
}

/// Revokes a key: every front end refuses it within two seconds. Revoking it again changes nothing.
#[utoipa::path(delete, operation_id = "keys_revoke", path = "/v1/keys/{key}", tag = "keys",
    params(
        ("key" = String, Path, description = "its id"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    responses(
        (status = 200, description = "The present state of the key", body = KeyBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn revoke(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let registry = state.registry();
    TaggedDocument::new(&KeyBody::from(registry.key(&id).await?)).check(&headers)?;
    let key = registry.revoke_key(&id, unix_ms()).await?;
    state.refresh_keys().await?;
    Ok(TaggedDocument::new(&KeyBody::from(key)).with(StatusCode::OK))
}

// === impl NewKeyBody ===

impl NewKeyBody {
    fn read(self, secret: &Secret, now_ms: u64) -> Result<NewKey, Problem> {
        let length = self.name.chars().count();
        if length == 0 || length > MAX_NAME_CHARS {
            let detail =
                format!("`name` has `{length}` characters: it must have 1 to {MAX_NAME_CHARS}");
            return Err(wrong("name", detail));
        }
        let scopes = scopes(&self.scopes)?;
        let application = self.application.map(ApplicationId::new).transpose()?;
        if application.is_some() && scopes.contains(&KeyScope::Admin) {
            let detail = "a key with the scope `admin` cannot be bound to one application";
            return Err(wrong("application", detail));
        }
        if self
            .rate_per_s
            .is_some_and(|rate| !rate.is_finite() || rate < 1e-3)
        {
            return Err(wrong("rate_per_s", "`rate_per_s` must be at least 0.001"));
        }
        if self.burst.is_some() && self.rate_per_s.is_none() {
            return Err(wrong(
                "burst",
                "`burst` without `rate_per_s` limits nothing",
            ));
        }
        for (name, number) in [("burst", self.burst), ("quota_per_day", self.quota_per_day)] {
            if number.is_some_and(|number| number == 0 || number > u64::from(u32::MAX)) {
                return Err(wrong(name, format!("`{name}` must be 1 to {}", u32::MAX)));
            }
        }
        if self.expires_ms.is_some_and(|end| end <= now_ms) {
            return Err(wrong("expires_ms", "`expires_ms` lies in the past"));
        }
        Ok(NewKey {
            application,
            rate_per_s: self.rate_per_s,
            burst: self.burst,
            quota_per_day: self.quota_per_day,
            expires_ms: self.expires_ms,
            ..NewKey::new(self.name, secret.hash().to_text(), &scopes)
        })
    }
}

fn scopes(names: &[String]) -> Result<Vec<KeyScope>, Problem> {
    if names.is_empty() {
        let detail = "`scopes` is empty: name `query`, `register`, `python` or `admin`";
        return Err(wrong("scopes", detail));
    }
    let scope = |name: &String| {
        KeyScope::parse(name).ok_or_else(|| {
            let name = short(name);
            let detail =
                format!("there is no scope `{name}`: use `query`, `register`, `python`, `admin`");
            wrong("scopes", detail)
        })
    };
    names.iter().map(scope).collect()
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, detail).field(field)
}

impl From<ApiKey> for KeyBody {
    fn from(key: ApiKey) -> Self {
        Self {
            id: key.id,
            name: key.name,
            scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
            application: key.application.map(|application| application.to_string()),
            rate_per_s: key.rate_per_s,
            burst: key.burst,
            quota_per_day: key.quota_per_day,
            created_ms: key.created_ms,
            expires_ms: key.expires_ms,
            revoked_ms: key.revoked_ms,
        }
    }
}
