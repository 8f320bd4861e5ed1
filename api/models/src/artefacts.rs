//! `/v1/artefacts`: files for jobs and registrations.

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use sextant_objects::{ListRequest, ObjectInfo, ObjectPath};
use sextant_types::Code;
use utoipa::ToSchema;

use crate::{
    ApiState, body,
    extract::{self, Params},
    precondition::Tag,
    problem::{Problem, ProblemBody},
    upload,
};

/// A stored file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Artefact)]
pub struct ArtefactBody {
    /// Its path.
    path: String,
    /// Its size, bytes.
    size_bytes: u64,
    /// When it was last written, milliseconds since the Unix epoch.
    modified_ms: u64,
}

/// One page of stored files.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Artefacts)]
pub struct ArtefactsBody {
    /// Sorted by path.
    artefacts: Vec<ArtefactBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which files to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListParams {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

/// The content of a file.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "describes what is streamed")]
pub struct FileContent(Vec<u8>);

/// The path in the artefact store that a route names.
pub struct Target(ObjectPath);

/// Stores a file, and replaces an existing one. The service streams the body into the store.
#[utoipa::path(put, operation_id = "artefacts_put", path = "/v1/artefacts/{*path}", tag = "artefacts",
    params(
        ("path" = String, Path, description = "path in the store"),
        ("if-match" = Option<String>, Header, description = "only if this is still the `ETag` of the file there"),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is no file"),
    ),
    request_body(content = inline(FileContent), content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "Stored", body = ArtefactBody),
        (status = 412, description = "There is another file, or none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "No room left", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn put(
    State(state): State<ApiState>,
    Target(path): Target,
    request: Request,
) -> Result<Response, Problem> {
    let max_bytes = state.limits().max_model_bytes;
    let (parts, body) = request.into_parts();
    let mut pieces = upload::paced(body, state.limits()).into_data_stream();
    if let Err(refused) = may_put(&state, &path, &parts.headers).await {
        body::discard(&mut pieces).await;
        return Err(refused);
    }
    let bytes = upload::limited(&mut pieces, "the artefact", max_bytes);
    if let Err(error) = state.objects().put_stream(&path, bytes).await {
        body::discard(&mut pieces).await;
        return Err(error.into());
    }
    let info = upload::existing(state.objects().as_ref(), &path).await?;
    let tag = tag(&info);
    let mut response = (StatusCode::CREATED, Json(ArtefactBody::from(info))).into_response();
    tag.mark(response.headers_mut());
    Ok(response)
}

/// Returns a file, or one range of it.
#[utoipa::path(get, operation_id = "artefacts_get", path = "/v1/artefacts/{*path}", tag = "artefacts",
    params(
        ("path" = String, Path, description = "path in the store"),
        ("range" = Option<String>, Header, description = "`bytes=first-last`"),
        ("if-range" = Option<String>, Header, description = "the `ETag` to which the range belongs; if the file has \
            another one, the whole file is sent"),
        ("if-none-match" = Option<String>, Header, description = "the `ETag` of a file that is known"),
    ),
    responses(
        (status = 200, description = "The file", body = inline(FileContent),
            content_type = "application/octet-stream"),
        (status = 206, description = "Part of the file", body = inline(FileContent),
            content_type = "application/octet-stream"),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 416, description = "The range contains none of the file's bytes", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Target(path): Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let info = upload::existing(state.objects().as_ref(), &path).await?;
    let (size, tag) = (info.size_bytes, tag(&info));
    if tag.is_known(&headers) {
        return Ok(tag.not_modified());
    }
    let part = match tag.is_in_range(&headers) {
        true => range(&headers, size)?,
        false => None,
    };
    let (start, end) = part.unwrap_or((0, size));
    let bytes = upload::stored(state.objects().clone(), info, (start, end));
    let mut response = Response::new(Body::from_stream(bytes));
    describe(response.headers_mut(), end - start);
    tag.mark(response.headers_mut());
    if (start, end) != (0, size) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let part = format!("bytes {start}-{}/{size}", end - 1);
        if let Ok(part) = HeaderValue::from_str(&part) {
            response.headers_mut().insert(header::CONTENT_RANGE, part);
        }
    }
    Ok(response)
}

/// Size of a file.
#[utoipa::path(head, operation_id = "artefacts_head", path = "/v1/artefacts/{*path}", tag = "artefacts",
    params(
        ("path" = String, Path, description = "path in the store"),
        ("if-none-match" = Option<String>, Header, description = "the `ETag` of a file that is known"),
    ),
    responses(
        (status = 200, description = "It exists"),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "It does not"),
    ))]
pub async fn head(
    State(state): State<ApiState>,
    Target(path): Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let info = upload::existing(state.objects().as_ref(), &path).await?;
    let tag = tag(&info);
    if tag.is_known(&headers) {
        return Ok(tag.not_modified());
    }
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), info.size_bytes);
    tag.mark(response.headers_mut());
    Ok(response)
}

/// Deletes a file.
#[utoipa::path(delete, operation_id = "artefacts_delete", path = "/v1/artefacts/{*path}", tag = "artefacts",
    params(
        ("path" = String, Path, description = "path in the store"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn delete(
    State(state): State<ApiState>,
    Target(path): Target,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    if headers.contains_key(header::IF_MATCH) {
        let info = upload::existing(state.objects().as_ref(), &path).await?;
        tag(&info).check(&headers)?;
    }
    if state.objects().delete(&path).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = format!("there is no artefact `{path}`");
    Err(Problem::new(Code::ArtefactNotFound, detail))
}

/// Files under a prefix, page by page.
#[utoipa::path(get, operation_id = "artefacts_list", path = "/v1/artefacts", tag = "artefacts",
    params(
        ("prefix" = Option<String>, Query, description = "only paths that begin with this"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "most files, 1 to 1000"),
    ),
    responses((status = 200, description = "Sorted by path", body = ArtefactsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    Params(params): Params<ListParams>,
) -> Result<Json<ArtefactsBody>, Problem> {
    let after = params.after.as_deref().map(ObjectPath::parse).transpose()?;
    let request = ListRequest {
        prefix: params.prefix,
        after,
        limit: params.limit.unwrap_or(1000).clamp(1, 1000),
    };
    let page = state.objects().list(&request).await?;
    Ok(Json(ArtefactsBody {
        artefacts: page.objects.into_iter().map(ArtefactBody::from).collect(),
        next: page.next.map(|path| path.to_string()),
    }))
}

/// Refuses to overwrite a file that the caller has not seen, or any file if the caller expects none. The check comes
/// before the body: if two callers write at once, both may pass.
async fn may_put(state: &ApiState, path: &ObjectPath, headers: &HeaderMap) -> Result<(), Problem> {
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
    if !conditions.iter().any(|name| headers.contains_key(name)) {
        return Ok(());
    }
    let failed = |detail: String, field: &'static str| {
        Err(Problem::new(Code::PreconditionFailed, detail).field(field))
    };
    match state.objects().stat(path).await? {
        Some(info) if tag(&info).is_known(headers) => failed(
            format!("there is an artefact `{path}` already, and `If-None-Match` names it"),
            "if-none-match",
        ),
        Some(info) => tag(&info).check(headers),
        None if headers.contains_key(header::IF_MATCH) => failed(
            format!("there is no artefact `{path}` that `If-Match` could name"),
            "if-match",
        ),
        None => Ok(()),
    }
}

/// The tag of a file, from its metadata: the content is not read for it.
fn tag(info: &ObjectInfo) -> Tag {
    Tag::of(format!("{} {} {}", info.path, info.size_bytes, info.modified_ms).as_bytes())
}

fn describe(headers: &mut HeaderMap, size_bytes: u64) {
    let octets = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, octets);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size_bytes));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
}

/// The one range that the request asks for, as `start .. end`. Several ranges, and ranges in another unit than bytes,
/// are ignored, as HTTP allows.
fn range(headers: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, Problem> {
    let asked = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let Some((first, last)) = asked
        .and_then(|value| value.strip_prefix("bytes="))
        .and_then(|value| value.split_once('-'))
    else {
        return Ok(None);
    };
    let range = match (extract::digits(first.trim()), extract::digits(last.trim())) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(size)),
        (Some(first), None) if last.is_empty() => (first, size),
        (None, Some(length)) if first.is_empty() => (size.saturating_sub(length), size),
        _ => return Ok(None),
    };
    if range.0 < range.1 {
        return Ok(Some(range));
    }
    let detail = format!("the artefact has `{size}` bytes: the range holds none of them");
    Err(Problem::new(Code::RangeNotSatisfiable, detail).field("range"))
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = extract::text(parts, state).await?;
        Ok(Self(ObjectPath::parse(&path)?))
    }
}

impl From<ObjectInfo> for ArtefactBody {
    fn from(info: ObjectInfo) -> Self {
        Self {
            path: info.path.to_string(),
            size_bytes: info.size_bytes,
            modified_ms: info.modified_ms,
        }
    }
}
