//! The answers of the API server.

use std::time::Instant;

use http::{Method, Response, StatusCode, Uri};
use kube::client::Body;
use serde_json::{Value, json};
use sextant_provider_kubernetes::Kind;

use super::{FaultKind, NAMESPACE, World};

impl World {
    /// `None` if it hangs.
    pub(crate) fn answer(
        &mut self,
        method: &Method,
        uri: &Uri,
        body: &[u8],
    ) -> Option<Response<Body>> {
        let path = uri.path();
        self.calls.push((method.clone(), path.to_owned()));
        match self.fault(method, path) {
            Some(FaultKind::Status(code, message)) => return Some(failure(code, message)),
            Some(FaultKind::Hang) => return None,
            Some(FaultKind::Raw(text)) => return Some(response(StatusCode::OK, text.to_owned())),
            Some(FaultKind::After(happens)) => happens(self),
            None => {}
        }
        let patch = serde_json::from_slice(body).unwrap_or(Value::Null);
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        Some(match (method.as_str(), parts.as_slice()) {
            (
                "GET",
                [
                    "apis",
                    "apps",
                    "v1",
                    "namespaces",
                    NAMESPACE,
                    kind,
                    name,
                    "scale",
                ],
            ) => self.scale_of(kind, name),
            (
                "PATCH",
                [
                    "apis",
                    "apps",
                    "v1",
                    "namespaces",
                    NAMESPACE,
                    kind,
                    name,
                    "scale",
                ],
            ) => self.write_scale(kind, name, &patch),
            ("GET", ["api", "v1", "namespaces", NAMESPACE, "pods"]) => self.list(uri),
            ("PATCH", ["api", "v1", "namespaces", NAMESPACE, "pods", name]) => {
                self.annotate(name, &patch)
            }
            _ => failure(403, "the Role of the documentation does not allow it"),
        })
    }

    fn fault(&mut self, method: &Method, path: &str) -> Option<FaultKind> {
        let mut faults = self.faults.iter_mut();
        let fault = faults.find(|fault| {
            fault.times > 0 && fault.method == *method && path.ends_with(fault.path_end)
        })?;
        fault.times -= 1;
        Some(fault.what.clone())
    }

    fn scale_of(&self, kind: &str, name: &str) -> Response<Body> {
        let Some(workload) = self
            .workloads
            .get(name)
            .filter(|it| plural(it.kind) == kind)
        else {
            return failure(404, "not found");
        };
        let selector = format!("app={name}");
        // The API server omits a 0.
        let spec = match workload.replicas {
            0 => json!({}),
            replicas => json!({ "replicas": replicas }),
        };
        success(&json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": { "name": name, "resourceVersion": workload.version.to_string() },
            "spec": spec,
            "status": { "replicas": workload.replicas, "selector": selector },
        }))
    }

    fn write_scale(&mut self, kind: &str, name: &str, patch: &Value) -> Response<Body> {
        let Some(workload) = self
            .workloads
            .get_mut(name)
            .filter(|it| plural(it.kind) == kind)
        else {
            return failure(404, "not found");
        };
        let read = patch["metadata"]["resourceVersion"].as_str();
        if read != Some(&*workload.version.to_string()) {
            return failure(409, "the object has been modified");
        }
        let replicas = patch["spec"]["replicas"].as_u64();
        workload.replicas = u32::try_from(replicas.expect("a number")).expect("small");
        workload.version += 1;
        workload.written = Instant::now();
        self.scale_of(kind, name)
    }

    fn list(&self, uri: &Uri) -> Response<Body> {
        let query = uri.query().unwrap_or_default().replace("%3D", "=");
        let selector = query
            .split('&')
            .find_map(|it| it.split_once("labelSelector="));
        let label = selector.and_then(|(_, selector)| selector.strip_prefix("app="));
        let pods = self.pods.values();
        let items: Vec<Value> = pods
            .filter(|pod| label.is_none_or(|label| pod.workload == label))
            .map(super::Fake::json)
            .collect();
        success(&json!({
            "apiVersion": "v1",
            "kind": "PodList",
            "metadata": { "resourceVersion": "1" },
            "items": items,
        }))
    }

    fn annotate(&mut self, name: &str, patch: &Value) -> Response<Body> {
        let Some(pod) = self.pods.get_mut(name) else {
            return failure(404, "not found");
        };
        let annotations = patch["metadata"]["annotations"].as_object();
        for (name, value) in annotations.expect("annotations") {
            let value = value.as_str().expect("a text");
            pod.annotations.insert(name.clone(), value.to_owned());
        }
        success(&pod.json())
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Deployment => "deployments",
        Kind::StatefulSet => "statefulsets",
    }
}

fn success(body: &Value) -> Response<Body> {
    response(StatusCode::OK, body.to_string())
}

fn failure(code: u16, message: &str) -> Response<Body> {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": "Played",
        "code": code,
    });
    let code = StatusCode::from_u16(code).expect("a code");
    response(code, body.to_string())
}

fn response(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into_bytes()));
    *response.status_mut() = code;
    response
}
