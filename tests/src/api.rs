//! An HTTP client with the checks that every answer must pass.

use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap},
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::wait::until;

/// A client of one service.
#[derive(Debug, Clone)]
pub struct Api {
    address: String,
    http: reqwest::Client,
    /// For bodies that may be refused before they are sent: their connection cannot be used again.
    uploads: reqwest::Client,
}

/// An answer of the service.
#[derive(Debug)]
pub struct Answer {
    /// The request, for the text of failures.
    pub request: String,
    /// HTTP status.
    pub status: StatusCode,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

/// The parts of a model's upload.
#[derive(Debug, Clone)]
pub struct Upload<'a> {
    /// The application.
    pub application: &'a str,
    /// The model's name.
    pub name: &'a str,
    /// The ONNX file.
    pub model: Vec<u8>,
    /// The validation set.
    pub validation: Vec<u8>,
    /// The validation set's file name: `validation.npz` or `validation.jsonl`.
    pub validation_name: &'a str,
}

impl Api {
    /// A client of the service at `address`.
    pub fn new(address: &str) -> Self {
        Self::sending(address, &HeaderMap::new())
    }

    /// The same client with a key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let key = format!("Bearer {key}").parse().expect("printable");
        Self::sending(&self.address, &[(AUTHORIZATION, key)].into_iter().collect())
    }

    fn sending(address: &str, headers: &HeaderMap) -> Self {
        // The client may have been built with TLS, which then requires a provider. Fails if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .no_proxy()
                .default_headers(headers.clone())
        };
        let uploads = builder().pool_max_idle_per_host(0);
        Self {
            address: address.to_owned(),
            http: builder().build().expect("a client"),
            uploads: uploads.build().expect("a client"),
        }
    }

    /// A request with a JSON body.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let bytes = body.map(|body| body.to_string().into_bytes());
        self.send_bytes(method, path, "application/json", bytes)
            .await
    }

    /// A request with any body.
    pub async fn send_bytes(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<Vec<u8>>,
    ) -> Answer {
        let name = format!("{method} {path}");
        let mut request = self.http.request(method, format!("{}{path}", self.address));
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        Answer::read(name, request).await
    }

    /// A request with further headers.
    pub async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Answer {
        let name = format!("{method} {path}");
        let request = self
            .http
            .request(method, format!("{}{path}", self.address))
            .body(body);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, value)
        });
        Answer::read(name, request).await
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// `POST` of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    /// `PATCH` of JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, Some(body)).await
    }

    /// `POST` of bytes that claim to be JSON.
    pub async fn post_raw(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.send_bytes(Method::POST, path, "application/json", Some(body.into()))
            .await
    }

    /// `PUT` of bytes.
    pub async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        let request = self.uploads.put(format!("{}{path}", self.address));
        let request = request.header(CONTENT_TYPE, "application/octet-stream");
        Answer::read(format!("PUT {path}"), request.body(body.into())).await
    }

    /// `DELETE`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    /// Sends a request whose target is not changed, and returns the status of its answer. Other clients normalise
    /// paths.
    pub async fn status_of_raw_target(&self, method: &str, target: &str) -> u16 {
        let host = self.address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).await.expect("the service listens");
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("the request is taken");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .expect("the answer arrives");
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("{method} {target}: {answer}"))
    }

    /// Uploads a model. A set without labels is declared as such.
    pub async fn upload(&self, upload: Upload<'_>) -> Answer {
        self.upload_with(upload, &[]).await
    }

    /// The same with further fields.
    pub async fn upload_with(&self, upload: Upload<'_>, fields: &[(&str, &str)]) -> Answer {
        let part = |bytes: Vec<u8>, name: &str| Part::bytes(bytes).file_name(name.to_owned());
        let has_labels = upload.validation.windows(5).any(|word| word == b"label");
        let form = match has_labels {
            true => Form::new(),
            false => Form::new().text("labels", "none"),
        };
        let named = |form: Form, (name, text): &(&str, &str)| {
            form.text((*name).to_owned(), (*text).to_owned())
        };
        let form = fields
            .iter()
            .fold(form, named)
            .text("name", upload.name.to_owned())
            .text("application", upload.application.to_owned())
            .part("model", part(upload.model, "model.onnx"))
            .part(
                "validation",
                part(upload.validation, upload.validation_name),
            );
        self.multipart("/v1/models", form).await
    }

    /// Sends any form.
    pub async fn multipart(&self, path: &str, form: Form) -> Answer {
        let request = self.uploads.post(format!("{}{path}", self.address));
        let request = request.multipart(form);
        Answer::read(format!("POST {path} (form)"), request).await
    }

    /// Creates an application that is scored by top-1.
    pub async fn create_application(&self, name: &str) {
        let body = json!({"name": name, "metric": "top1"});
        self.post("/v1/applications", &body).await.created();
    }

    /// Uploads a model and waits for the registration to end. Returns the job's document.
    pub async fn register(&self, upload: Upload<'_>) -> Value {
        let accepted = self.upload(upload).await.json(202);
        self.job_over(accepted["job"].as_str().expect("the id of a job"))
            .await
    }

    /// A job's present document.
    pub async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await.json(200)
    }

    /// Waits until the job has ended. Returns its last document.
    pub async fn job_over(&self, id: &str) -> Value {
        until(&format!("job `{id}` is over"), || async {
            let job = self.job(id).await;
            let state = job["state"].as_str().expect("a job has a state");
            matches!(state, "succeeded" | "failed" | "cancelled").then_some(job.clone())
        })
        .await
    }
}

impl Answer {
    async fn read(request: String, builder: reqwest::RequestBuilder) -> Self {
        let response = match builder.send().await {
            Ok(response) => response,
            Err(error) => panic!("{request}: {error:?}"),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.expect("the body arrives").to_vec();
        Self {
            request,
            status,
            headers,
            body,
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON of an answer that must have this status.
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(
            self.status.as_u16(),
            status,
            "{}: {}",
            self.request,
            self.text()
        );
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.request, self.text()))
    }

    /// The JSON of an answer with status 200 or 201.
    pub fn created(&self) -> Value {
        let status = if self.status == StatusCode::CREATED {
            201
        } else {
            200
        };
        self.json(status)
    }

    /// The problem document of an answer with this status and code. Every member that clients rely on must be there.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let document = self.json(status);
        assert_eq!(document["code"], code, "{}: {document}", self.request);
        assert_eq!(document["status"], status, "{}: {document}", self.request);
        assert_eq!(
            document["type"],
            format!("/docs/errors/{code}"),
            "{}",
            self.request
        );
        let detail = document["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty(), "{}: {document}", self.request);
        let kind = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let is_protocol = document["instance"]
            .as_str()
            .is_some_and(|path| path.starts_with("/v2"));
        let wanted = match is_protocol {
            true => "application/json",
            false => "application/problem+json",
        };
        assert_eq!(kind, Some(wanted), "{}", self.request);
        document
    }
}
