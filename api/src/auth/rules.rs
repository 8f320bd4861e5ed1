//! The one table of the scope that each operation needs.

use std::collections::HashMap;

use axum::http::Method;
use sextant_registry::KeyScope;
use utoipa::openapi::{
    OpenApi,
    path::{Operation, PathItem},
    security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
};

use crate::{pages, v2::grpc};

/// What an operation needs, and its name in the audit record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    operation: &'static str,
    /// What a key must allow.
    pub need: Need,
    /// What a key that is bound to one application may do here.
    pub bound: Bound,
    /// The action's name in the audit record.
    pub audited: Option<&'static str>,
    /// Whether it stores or removes files, so that the registry and the artefact store must belong together.
    pub stores: bool,
}

/// What a key must allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// No key.
    Nothing,
    /// A key, if the configuration asks for one.
    Metrics,
    /// Any valid key.
    Key,
    /// A key with this scope.
    Scope(KeyScope),
}

/// What a key that is bound to one application may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Refused: the operation concerns no application, or several.
    Refused,
    /// The application, model, variant or job in the path must belong to the key's.
    Path,
    /// Allowed: the handler limits itself to the key's application.
    Handler,
}

const ADMIN: Need = Need::Scope(KeyScope::Admin);
const QUERY: Need = Need::Scope(KeyScope::Query);
const REGISTER: Need = Need::Scope(KeyScope::Register);

const RULES: &[Rule] = &[
    read("index", Need::Nothing, Bound::Handler),
    read("error_page", Need::Nothing, Bound::Handler),
    read("health_live", Need::Nothing, Bound::Handler),
    read("health_ready", Need::Nothing, Bound::Handler),
    read("v2_live", Need::Nothing, Bound::Handler),
    read("v2_ready", Need::Nothing, Bound::Handler),
    read("v2_server", Need::Nothing, Bound::Handler),
    read("metrics", Need::Metrics, Bound::Refused),
    read("queries_create", QUERY, Bound::Handler),
    read("queries_create_batch", QUERY, Bound::Handler),
    read("queries_get", QUERY, Bound::Handler),
    read("embeddings_create", QUERY, Bound::Handler),
    read("feedback_give", QUERY, Bound::Handler),
    read("feedback_export", REGISTER, Bound::Path),
    write("feedback_erase", Bound::Path, "feedback.erase"),
    read("applications_accuracy", Need::Key, Bound::Path),
    read("v2_infer", QUERY, Bound::Handler),
    read("v2_infer_version", QUERY, Bound::Handler),
    read("v2_model", Need::Key, Bound::Handler),
    read("v2_model_version", Need::Key, Bound::Handler),
    read("v2_model_config", Need::Key, Bound::Handler),
    read("v2_model_version_config", Need::Key, Bound::Handler),
    read("v2_model_statistics", Need::Key, Bound::Handler),
    read("v2_model_version_statistics", Need::Key, Bound::Handler),
    read("v2_statistics", Need::Key, Bound::Handler),
    read("v2_model_ready", Need::Key, Bound::Handler),
    read("v2_model_version_ready", Need::Key, Bound::Handler),
    read("v2_index", Need::Key, Bound::Handler),
    by_query("v2_load", "model.load"),
    by_query("v2_unload", "model.unload"),
    read("v2_log", Need::Key, Bound::Refused),
    Rule {
        audited: Some("log.change"),
        ..read("v2_log_change", ADMIN, Bound::Refused)
    },
    read("v2_trace", Need::Key, Bound::Handler),
    read("v2_trace_change", ADMIN, Bound::Refused),
    read("v2_model_trace", Need::Key, Bound::Handler),
    read("v2_model_trace_change", ADMIN, Bound::Refused),
    read("v2_regions", QUERY, Bound::Handler),
    read("v2_region", QUERY, Bound::Handler),
    by_query("v2_region_register", "region.register"),
    by_query("v2_region_unregister", "region.unregister"),
    by_query("v2_regions_unregister", "region.unregister"),
    read("v2_cuda_regions", QUERY, Bound::Handler),
    read("v2_cuda_regions_unregister", QUERY, Bound::Handler),
    read("applications_list", Need::Key, Bound::Handler),
    read("applications_get", Need::Key, Bound::Path),
    read("applications_status", Need::Key, Bound::Path),
    write("applications_create", Bound::Refused, "application.create"),
    write("applications_change", Bound::Path, "application.change"),
    write("applications_delete", Bound::Path, "application.delete"),
    read("pipelines_list", Need::Key, Bound::Handler),
    read("pipelines_get", Need::Key, Bound::Path),
    read("pipelines_ask", QUERY, Bound::Path),
    read("pipeline_schema", Need::Nothing, Bound::Handler),
    write("pipelines_create", Bound::Refused, "pipeline.create"),
    read("pipelines_graph", Need::Key, Bound::Path),
    write("pipelines_replace", Bound::Path, "pipeline.change"),
    write("pipelines_change", Bound::Path, "pipeline.change"),
    write("pipelines_delete", Bound::Path, "pipeline.delete"),
    read("models_list", Need::Key, Bound::Handler),
    read("models_get", Need::Key, Bound::Path),
    read("models_file", REGISTER, Bound::Path),
    read("versions_list", Need::Key, Bound::Path),
    read("versions_trials", Need::Key, Bound::Path),
    write("versions_change", Bound::Path, "version.change"),
    write("versions_promote", Bound::Path, "version.promote"),
    write("versions_rollback", Bound::Path, "version.rollback"),
    storing("models_create", Bound::Handler, "model.create"),
    storing(
        "models_create_from_artefacts",
        Bound::Handler,
        "model.create",
    ),
    write("models_delete", Bound::Path, "model.delete"),
    storing("models_retry", Bound::Path, "model.create"),
    read("variants_of_application", Need::Key, Bound::Path),
    read("variants_of_model", Need::Key, Bound::Path),
    read("variants_get", Need::Key, Bound::Path),
    read("variants_list", Need::Key, Bound::Handler),
    read("jobs_list", Need::Key, Bound::Refused),
    read("jobs_get", Need::Key, Bound::Path),
    read("jobs_events", Need::Key, Bound::Path),
    storing("jobs_create", Bound::Refused, "job.create"),
    write("jobs_cancel", Bound::Path, "job.cancel"),
    read("artefacts_list", REGISTER, Bound::Refused),
    read("artefacts_get", REGISTER, Bound::Refused),
    read("artefacts_head", REGISTER, Bound::Refused),
    storing("artefacts_put", Bound::Refused, "artefact.put"),
    storing("artefacts_delete", Bound::Refused, "artefact.delete"),
    read("workers_list", Need::Key, Bound::Refused),
    read("workers_stats", Need::Key, Bound::Refused),
    Rule {
        audited: Some("worker.drain"),
        ..read("workers_drain", ADMIN, Bound::Refused)
    },
    read("instances_list", Need::Key, Bound::Refused),
    read("cluster_get", Need::Key, Bound::Refused),
    read("costs_get", ADMIN, Bound::Refused),
    read("scaling_get", Need::Key, Bound::Refused),
    read("scaling_decisions", Need::Key, Bound::Refused),
    read("scaling_events", Need::Key, Bound::Refused),
    read("keys_list", ADMIN, Bound::Refused),
    read("keys_get", ADMIN, Bound::Refused),
    Rule {
        audited: Some("key.create"),
        ..read("keys_create", ADMIN, Bound::Refused)
    },
    Rule {
        audited: Some("key.revoke"),
        ..read("keys_revoke", ADMIN, Bound::Refused)
    },
    read("audit_list", ADMIN, Bound::Refused),
    read("storage_get", ADMIN, Bound::Refused),
    Rule {
        audited: Some("storage.sweep"),
        ..read("storage_sweep", ADMIN, Bound::Refused)
    },
    Rule {
        audited: Some("storage.adopt"),
        ..read("storage_adopt", ADMIN, Bound::Refused)
    },
];

/// The rule of an operation that the table lacks. It refuses everybody but administrators; a test finds such an
/// operation.
const CLOSED: Rule = read("", ADMIN, Bound::Refused);

/// The rule of the interactive description and of the pages. The pages check the caller themselves; their routes are
/// not operations.
const EXPLORER: Rule = read("", Need::Nothing, Bound::Handler);

/// Rules by route.
pub(crate) struct RuleBook(HashMap<String, Vec<(Method, Rule)>>);

const fn read(operation: &'static str, need: Need, bound: Bound) -> Rule {
    Rule {
        operation,
        need,
        bound,
        audited: None,
        stores: false,
    }
}

const fn write(operation: &'static str, bound: Bound, audited: &'static str) -> Rule {
    Rule {
        audited: Some(audited),
        ..read(operation, REGISTER, bound)
    }
}

/// A change that stores or removes files.
const fn storing(operation: &'static str, bound: Bound, audited: &'static str) -> Rule {
    Rule {
        stores: true,
        ..write(operation, bound, audited)
    }
}

/// A change that a key with the scope `query` may make.
const fn by_query(operation: &'static str, audited: &'static str) -> Rule {
    Rule {
        audited: Some(audited),
        ..read(operation, QUERY, Bound::Handler)
    }
}

/// The rule of an operation; `None` where the table has none.
fn rule(operation: &Operation) -> Option<Rule> {
    let name = operation.operation_id.as_deref()?;
    RULES.iter().find(|rule| rule.operation == name).copied()
}

// === impl RuleBook ===

impl RuleBook {
    /// Reads the routes from the description, whose paths are still those of the router.
    pub fn new(openapi: &OpenApi) -> Self {
        let rules = |item: &PathItem| {
            let rule = |operation: &Operation| rule(operation).unwrap_or(CLOSED);
            let operations = operations(item);
            operations
                .filter_map(|(method, operation)| Some((method, rule(operation?))))
                .collect()
        };
        let paths = openapi.paths.paths.iter();
        let calls = grpc::RULES.iter().map(|(path, operation)| {
            let rule = RULES.iter().find(|rule| rule.operation == *operation);
            let rule = rule.copied().unwrap_or(CLOSED);
            ((*path).to_owned(), vec![(Method::POST, rule)])
        });
        Self(
            paths
                .map(|(path, item)| (path.clone(), rules(item)))
                .chain(calls)
                .collect(),
        )
    }

    /// The rule of a route. `HEAD` has the rule of `GET`. The router refuses a method that the route does not take.
    pub fn find(&self, method: &Method, path: &str) -> Rule {
        let bare = path.strip_suffix('/').filter(|bare| !bare.is_empty());
        let Some(rules) = self.0.get(bare.unwrap_or(path)) else {
            let is_explorer = path == "/openapi.json" || path.starts_with("/docs");
            return if is_explorer || pages::is_page(path) {
                EXPLORER
            } else {
                CLOSED
            };
        };
        let of = |wanted: &Method| rules.iter().find(|(method, _)| method == wanted);
        let found = of(method).or_else(|| of(&Method::GET).filter(|_| method == Method::HEAD));
        found.map_or(EXPLORER, |(_, rule)| *rule)
    }
}

fn operations(item: &PathItem) -> impl Iterator<Item = (Method, Option<&Operation>)> {
    [
        (Method::GET, item.get.as_ref()),
        (Method::HEAD, item.head.as_ref()),
        (Method::POST, item.post.as_ref()),
        (Method::PUT, item.put.as_ref()),
        (Method::PATCH, item.patch.as_ref()),
        (Method::DELETE, item.delete.as_ref()),
    ]
    .into_iter()
}

/// Writes into the description which key each operation needs.
pub(crate) fn describe(openapi: &mut OpenApi) {
    let components = openapi.components.get_or_insert_default();
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.bearer_format = Some("sx_..".to_owned());
    bearer.description = Some("An API key, if the service needs keys.".to_owned());
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKeyValue::with_description("x-api-key", "The same in a header of its own.");
    components.add_security_scheme("header", SecurityScheme::ApiKey(ApiKey::Header(header)));
    for item in openapi.paths.paths.values_mut() {
        for operation in described(item) {
            operation.security = rule(operation).and_then(|rule| requirements(rule.need));
        }
    }
}

/// The operations of a path.
pub(crate) fn described(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut item.get,
        &mut item.head,
        &mut item.post,
        &mut item.put,
        &mut item.patch,
        &mut item.delete,
    ];
    all.into_iter().flatten()
}

fn requirements(need: Need) -> Option<Vec<SecurityRequirement>> {
    let scope = match need {
        Need::Nothing => return None,
        Need::Metrics | Need::Key => None,
        Need::Scope(scope) => Some(scope.as_str()),
    };
    let either = ["bearer", "header"].map(|scheme| SecurityRequirement::new(scheme, scope));
    // A request without a key is accepted where no keys are configured, and for metrics unless the configuration asks
    // for a key.
    let nothing = (need == Need::Metrics).then(SecurityRequirement::default);
    Some(nothing.into_iter().chain(either).collect())
}

#[cfg(test)]
mod matrix;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_rule_and_every_rule_an_operation() {
        let described = crate::openapi();
        let mut operations: Vec<&str> = described
            .paths
            .paths
            .values()
            .flat_map(operations)
            .filter_map(|(_, operation)| operation?.operation_id.as_deref())
            .collect();
        let mut ruled: Vec<&str> = RULES.iter().map(|rule| rule.operation).collect();
        operations.sort_unstable();
        ruled.sort_unstable();
        assert_eq!(operations, ruled);
    }

    #[test]
    fn only_health_and_documentation_are_open() {
        let open = RULES.iter().filter(|rule| rule.need == Need::Nothing);
        let mut open: Vec<&str> = open.map(|rule| rule.operation).collect();
        open.sort_unstable();
        let wanted = [
            "error_page",
            "health_live",
            "health_ready",
            "index",
            "pipeline_schema",
            "v2_live",
            "v2_ready",
            "v2_server",
        ];
        assert_eq!(open, wanted);
    }

    #[test]
    fn every_call_has_the_rule_of_an_operation() {
        let book = RuleBook::new(&crate::openapi());
        for (path, operation) in grpc::RULES {
            assert_eq!(
                book.find(&Method::POST, path).operation,
                *operation,
                "{path}"
            );
        }
    }

    #[test]
    fn what_has_no_rule_is_closed() {
        let book = RuleBook::new(&crate::openapi());
        assert_eq!(book.find(&Method::GET, "/v1/forgotten").need, ADMIN);
        assert_eq!(book.find(&Method::GET, "/docs/{*rest}").need, Need::Nothing);
        let head = book.find(&Method::HEAD, "/v1/models");
        assert_eq!((head.operation, head.need), ("models_list", Need::Key));
    }
}
