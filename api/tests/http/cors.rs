//! Pages of other origins, as browsers ask for them.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, Request, header},
};

use crate::double::{Api, Recorder, Settings};

const PAGE: &str = "https://app.example.com";

async fn api(origins: &[&'static str]) -> Api {
    let settings = Settings {
        origins: origins.to_vec(),
        ..Settings::keys()
    };
    Api::with(Recorder::answering(), settings).await
}

/// Status and headers of what a browser asks for a page of `origin`.
async fn ask(api: &Api, method: &str, origin: &str) -> (u16, HeaderMap) {
    let request = Request::builder()
        .method(method)
        .uri("/v1/queries")
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(
            header::ACCESS_CONTROL_REQUEST_HEADERS,
            "authorization,content-type",
        )
        .body(Body::from("{}"))
        .expect("a request");
    let response = api.open(request).await;
    (response.status().as_u16(), response.headers().clone())
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers[name].to_str().expect("text")
}

#[tokio::test]
async fn a_browser_is_told_what_a_page_may_ask() {
    for (origins, allowed) in [(&[PAGE, "http://localhost:3000"][..], PAGE), (&["*"], "*")] {
        let api = api(origins).await;
        // Beforehand it has no key.
        let (status, headers) = ask(&api, "OPTIONS", PAGE).await;
        assert_eq!(status, 200);
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], allowed);
        let methods = text(&headers, header::ACCESS_CONTROL_ALLOW_METHODS);
        assert!(
            methods.contains("POST") && methods.contains("PATCH"),
            "{methods}"
        );
        let asked = &headers[header::ACCESS_CONTROL_ALLOW_HEADERS];
        assert_eq!(asked, "authorization,content-type");
        // The query itself needs one, and the page may read why it was refused.
        let (status, headers) = ask(&api, "POST", PAGE).await;
        assert_eq!(status, 401);
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], allowed);
        let exposed = text(&headers, header::ACCESS_CONTROL_EXPOSE_HEADERS);
        assert!(exposed.contains("x-request-id"), "{exposed}");
    }
}

#[tokio::test]
async fn other_pages_are_allowed_nothing() {
    for (origins, origin) in [(&[PAGE][..], "https://elsewhere.example"), (&[], PAGE)] {
        let api = api(origins).await;
        for method in ["OPTIONS", "POST"] {
            let (_, headers) = ask(&api, method, origin).await;
            let allowed = headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(allowed, None, "{method} of {origin}");
        }
    }
}

#[test]
fn origins_are_checked() {
    let origins = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        sextant_api::cors::origins(&texts)
    };
    assert_eq!(
        origins(&[PAGE, "*", "http://[::1]:8080"]).map(|all| all.len()),
        Ok(3)
    );
    for wrong in [
        "app.example.com",
        "https://",
        "https://app.example.com/",
        "ftp://x",
        "https://*.example.com",
    ] {
        let refused = origins(&[PAGE, wrong]).expect_err(wrong);
        assert!(
            refused.contains(wrong) && refused.contains("without a path"),
            "{refused}"
        );
    }
}
