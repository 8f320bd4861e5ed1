//! The errors of each operation in the description. It adds the errors that follow from the operation's parts to those
//! that its handler declares.

use axum::http::StatusCode;
use utoipa::openapi::{
    Content, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder,
    path::{Operation, ParameterIn},
};

use crate::{
    auth::described,
    problem::{PROBLEM_JSON, media_type},
};

/// Errors of every operation with a key.
const WITH_KEY: [(u16, &str); 3] = [
    (401, "The request has no valid key"),
    (403, "The key does not allow it"),
    (
        429,
        "Too many requests of this key, of its application, or in all",
    ),
];

/// Errors of every operation that does some work.
const WITH_WORK: [(u16, &str); 3] = [
    (
        400,
        "Something in the request is malformed or violates a rule",
    ),
    (500, "A fault of the service"),
    (
        503,
        "Not now: a store or a worker cannot be reached, or the service is stopping",
    ),
];

/// Errors of every operation with a body.
const WITH_BODY: [(u16, &str); 3] = [
    (404, "Nothing exists under a name in the path or the body"),
    (413, "The body is larger than the limit"),
    (504, "The body or the answer did not come in time"),
];

/// Error of every query.
const WITH_QUERY: (u16, &str) = (422, "Nothing can meet the targets");

/// Adds these errors to each operation; an error that the operation declares itself stays as it is.
pub(crate) fn describe(openapi: &mut OpenApi) {
    for (path, item) in &mut openapi.paths.paths {
        for operation in described(item) {
            speak_of_media(path, operation);
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                // A handler declares an optional body as such; every other body is required.
                body.required.get_or_insert(Required::True);
            }
            let found = found(path, operation);
            for (status, text) in found {
                let responses = &mut operation.responses.responses;
                responses
                    .entry(status.to_string())
                    .or_insert_with(|| RefOr::T(problem(path, text)));
            }
        }
    }
}

fn found(path: &str, operation: &Operation) -> Vec<(u16, &'static str)> {
    let mut found = Vec::new();
    let names_something = operation.parameters.iter().flatten();
    let names_something = names_something
        .into_iter()
        .any(|parameter| matches!(parameter, RefOr::T(it) if it.parameter_in == ParameterIn::Path));
    if operation.security.is_some() {
        found.extend(WITH_KEY);
        found.extend(WITH_WORK);
    }
    if names_something {
        found.push((
            StatusCode::NOT_FOUND.as_u16(),
            "Nothing of that name exists",
        ));
    }
    if operation.request_body.is_some() {
        found.extend(WITH_BODY);
    }
    if path.ends_with("/infer") || ["/v1/queries", "/v1/embeddings"].contains(&path) {
        found.push(WITH_QUERY);
    }
    found
}

/// Gives problems the media type of the path: handlers declare the type that most paths use.
fn speak_of_media(path: &str, operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && let Some(content) = response.content.shift_remove(PROBLEM_JSON)
        {
            response
                .content
                .insert(media_type(path).to_owned(), content);
        }
    }
}

fn problem(path: &str, text: &str) -> Response {
    let schema = Ref::from_schema_name("Problem");
    ResponseBuilder::new()
        .description(text)
        .content(media_type(path), Content::new(Some(schema)))
        .build()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_operation_with_a_key_says_what_may_go_wrong() {
        let described = crate::openapi();
        for (path, item) in described.paths.paths {
            let all = [item.get, item.post, item.put, item.patch, item.delete];
            for operation in all.into_iter().flatten() {
                if operation.security.is_none() {
                    continue;
                }
                for status in ["400", "401", "403", "429", "500", "503"] {
                    let responses = &operation.responses.responses;
                    assert!(responses.contains_key(status), "{path}: {status}");
                }
            }
        }
    }
}
