//! HTTP, JSON, OpenAPI: the REST front end.
