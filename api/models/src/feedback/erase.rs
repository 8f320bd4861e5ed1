//! `DELETE /v1/applications/{application}/feedback`: erases feedback.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use sextant_registry::ErasureScope;
use sextant_types::{ApplicationId, Code};
use utoipa::ToSchema;

use crate::{
    ApiState,
    extract::{Name, Params},
    problem::{Problem, ProblemBody},
    tokens::query_of,
};

/// Whose feedback to erase.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EraseParams {
    query: Option<String>,
    subject: Option<String>,
}

/// What was erased.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FeedbackErased)]
pub struct ErasedBody {
    /// Rows.
    erased: u64,
}

/// Erases the feedback of one query, or that about one subject. The sums still include it, because they
/// name nobody.
#[utoipa::path(delete, operation_id = "feedback_erase", path = "/v1/applications/{application}/feedback",
    tag = "feedback",
    params(
        ("application" = String, Path, description = "its name"),
        ("query" = Option<String>, Query, description = "the query: its token, or its name in an export"),
        ("subject" = Option<String>, Query, description = "the person whom the feedback is about, as in the items"),
    ),
    responses(
        (status = 200, description = "How much was erased", body = ErasedBody),
        (status = 404, description = "There is no such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn delete(
    State(state): State<ApiState>,
    Name(name): Name<ApplicationId>,
    Params(params): Params<EraseParams>,
) -> Result<Json<ErasedBody>, Problem> {
    state.registry().application(&name).await?;
    let query;
    let whose = match (&params.query, &params.subject) {
        (Some(text), None) => {
            query = query_of(state.tokens(), text)?;
            ErasureScope::Query(&query)
        }
        (None, Some(subject)) => ErasureScope::Subject(subject),
        _ => {
            let detail = "say whose with exactly one of `query` and `subject`";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
    };
    let erased = state.registry().erase_feedback(&name, whose).await?;
    Ok(Json(ErasedBody { erased }))
}
