//! HTTP to a server: addresses, problem documents, broken connections.

use std::io;

use reqwest::{
    Method, RequestBuilder, Response, Url,
    header::{self, HeaderMap, HeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use sextant_bench_client::Endpoint;

use super::{
    Error,
    error::Problem,
    trust::{self, trusting},
};

/// The environment variable with the API key: on a command line others could read it.
const API_KEY: &str = "SEXTANT_API_KEY";

/// A server to ask.
#[derive(Debug, Clone)]
pub struct Client {
    base: Url,
    http: reqwest::Client,
}

impl Client {
    /// Checks the address; nothing is sent.
    pub fn new(server: &str) -> Result<Self, Error> {
        let base = address(server)?;
        let http = trusting(reqwest::Client::builder(), &base)?
            .user_agent(concat!("sextant/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .default_headers(authorization()?)
            .build()
            .map_err(|source| Error::Http {
                server: server.to_owned(),
                source,
            })?;
        Ok(Self { base, http })
    }

    /// A request to `/{segment}/{segment}..`, each segment escaped.
    pub fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        self.http.request(method, self.url(segments))
    }

    /// A request with query parameters.
    pub fn request_with(
        &self,
        method: Method,
        segments: &[&str],
        parameters: &[(&str, &str)],
    ) -> RequestBuilder {
        let mut url = self.url(segments);
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        self.http.request(method, url)
    }

    /// `GET` with query parameters, its answer read as JSON.
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<T, Error> {
        let request = self.request_with(Method::GET, segments, parameters);
        self.answer(request).await
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// `GET`, its answer read as JSON.
    pub async fn get<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<T, Error> {
        self.answer(self.request(Method::GET, segments)).await
    }

    /// `POST` of a JSON body, its answer read as JSON.
    pub async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &Value,
    ) -> Result<T, Error> {
        self.answer(self.request(Method::POST, segments).json(body))
            .await
    }

    /// Sends, refuses problem documents, and reads the answer as JSON.
    pub async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.failed(error))?;
        serde_json::from_slice(&body).map_err(|error| Error::Answer {
            reason: format!("`{}` sent no such JSON: {error}", self.base),
        })
    }

    /// Sends and refuses everything but success.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|error| self.failed(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    /// Its address, without a slash at the end.
    pub fn server(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// The same server for a load generator, which has connections of its own.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        let tls = trust::config(&self.base)?;
        Ok(Endpoint::new(&self.server(), tls, authorization()?)?)
    }

    /// A broken connection, or a server that is not trusted, told apart from an absent one.
    pub fn failed(&self, source: reqwest::Error) -> Error {
        let server = self.server();
        match source.is_connect() && !is_distrust(&source) {
            true => Error::Unreachable { server, source },
            false => Error::Http { server, source },
        }
    }

    async fn refusal(&self, response: Response) -> Error {
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).cloned();
        let body = response.bytes().await.unwrap_or_default();
        match serde_json::from_slice::<Value>(&body) {
            Ok(document) if document.get("code").is_some() => Error::Problem(Box::new(Problem {
                document,
                server: self.server(),
            })),
            _ => Error::Answer {
                reason: format!("`{}` answered {status} with {kind:?}", self.base),
            },
        }
    }
}

/// A server's address.
fn address(server: &str) -> Result<Url, Error> {
    let is_complete = server.contains("://");
    let refuse = |reason: &str| {
        Error::Usage(format!(
            "the server `{server}` (`--server`, `SEXTANT_SERVER`): {reason}"
        ))
    };
    let base = match Url::parse(server) {
        Ok(base) if is_complete => base,
        Err(error) if is_complete => return Err(refuse(&error.to_string())),
        _ => {
            let reason = format!(
                "write `http://{server}`, or `https://..` where the server has a certificate"
            );
            return Err(refuse(&reason));
        }
    };
    match ["http", "https"].contains(&base.scheme()) && !base.cannot_be_a_base() {
        true => Ok(base),
        false => Err(refuse("it must begin with `http://` or `https://`")),
    }
}

/// The API key, where the environment has one.
fn authorization() -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let key = std::env::var(API_KEY).unwrap_or_default();
    if !key.is_empty() {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value
            .map_err(|_| Error::Usage(format!("`{API_KEY}` holds what no API key can hold")))?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Whether a connection failed because certificates were not accepted.
fn is_distrust(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        // `source` of an I/O error skips the error that it contains.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if wrapped.is_some_and(|wrapped| wrapped.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}
