//! Certificates between processes, checked before keys.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::Method;
use sextant_tests::{Settings, TestCluster};
use tempfile::TempDir;

use super::*;

/// An authority and a certificate that it issued for processes on the loopback interface.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        std::fs::write(folder.path().join(name), text).expect("the file is written");
    };
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("sound");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&key).expect("signed");
    write("ca.pem", certificate.pem());
    let issuer = Issuer::new(authority, key);
    let own = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = CertificateParams::new(names).expect("sound");
    let signed = params.signed_by(&own, &issuer).expect("signed");
    write("cert.pem", signed.pem());
    write("key.pem", own.serialize_pem());
    folder
}

fn mutual(folder: &Path) -> Vec<String> {
    [
        ("ca", "ca.pem"),
        ("certificate", "cert.pem"),
        ("key", "key.pem"),
    ]
    .map(|(key, file)| format!("fleet.{key}={}", folder.join(file).display()))
    .to_vec()
}

#[tokio::test]
async fn processes_without_the_fleets_certificates_are_let_in_nowhere() {
    let folder = certificates();
    let stranger = certificates();
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    let own = mutual(folder.path());
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    for role in ["dispatcher", "autoscaler", "variant-gen", "api"] {
        fleet.spawn(role, role, &own);
    }
    fleet.spawn("worker-1", "worker", &own);
    learn(&fleet.api()).await;
    loaded_on(&fleet.api(), &["worker-1"]).await;
    let other = mutual(stranger.path());
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    for (name, set) in [("api-plain", &[][..]), ("api-strange", &other)] {
        fleet.spawn(name, "api", set);
        let ready = fleet.api_of(name).get("/health/ready").await;
        ready.problem(503, "unavailable");
    }
    // A worker whose identity the others cannot verify gets no work.
    fleet.spawn("worker-plain", "worker", &[]);
    until("the worker is known", || async {
        let known = workers(&fleet.api()).await;
        known
            .iter()
            .any(|name| name == "worker-plain")
            .then_some(())
    })
    .await;
    for _ in 0..20 {
        answers(&fleet.api()).await;
    }
    let instances = fleet.api().get("/v1/instances").await.json(200);
    let listed = instances["instances"].as_array().expect("a list");
    assert!(
        listed.iter().all(|it| it["worker"] == "worker-1"),
        "{instances}"
    );
}

#[tokio::test]
async fn keys_and_their_limits_hold_at_every_front_end() {
    const ADMIN: &str = "an-administrators-key-for-tests";
    let settings = FleetSettings {
        set: vec![
            "auth.mode=keys".to_owned(),
            format!("auth.admin_key={ADMIN}"),
        ],
        ..FleetSettings::default()
    };
    let mut fleet = Fleet::over_stores(settings);
    for name in ["api", "api-2"] {
        fleet.spawn(name, "api", &[]);
    }
    let apis = [fleet.api(), fleet.api_of("api-2")];
    let bearer = |key: &str| vec![("authorization", format!("Bearer {key}"))];
    let ask = async |api: &Api, key: &str, method: Method, path: &str, body: Value| {
        let headers: Vec<_> = bearer(key)
            .into_iter()
            .chain([("content-type", "application/json".to_owned())])
            .collect();
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        api.send_with(method, path, &headers, body).await
    };
    apis[0]
        .get("/v1/models")
        .await
        .problem(401, "unauthenticated");
    let wanted = json!({"name": "reader", "scopes": ["query"], "rate_per_s": 0.01, "burst": 20});
    let made = ask(&apis[0], ADMIN, Method::POST, "/v1/keys", wanted).await;
    let made = made.created();
    let key = made["secret"]
        .as_str()
        .expect("the secret, once")
        .to_owned();
    let id = made["key"]["id"].as_str().expect("an id").to_owned();
    until("the key is known", || async {
        let answer = ask(
            &apis[1],
            &key,
            Method::POST,
            "/v1/keys",
            json!({"name": "x"}),
        )
        .await;
        (answer.status.as_u16() != 401).then(|| answer.problem(403, "forbidden"))
    })
    .await;
    let mut allowed = 0;
    for number in 0..60 {
        let api = &apis[number % 2];
        let answer = until("the key is known", || async {
            let answer = ask(api, &key, Method::GET, "/v1/models", Value::Null).await;
            (answer.status.as_u16() != 401).then_some(answer)
        })
        .await;
        match answer.status.as_u16() {
            200 => allowed += 1,
            _ => drop(answer.problem(429, "rate_limited")),
        }
    }
    assert!(
        (10..=21).contains(&allowed),
        "{allowed} requests, 20 were paid for"
    );
    let revoked = format!("/v1/keys/{id}");
    let revoked = ask(&apis[0], ADMIN, Method::DELETE, &revoked, Value::Null).await;
    assert!(revoked.status.is_success(), "{}", revoked.text());
    until("the other front end knows", || async {
        let answer = ask(&apis[1], &key, Method::GET, "/v1/models", Value::Null).await;
        (answer.status.as_u16() == 401).then_some(())
    })
    .await;
}

/// A service in which no user has any rights looks healthy otherwise.
#[tokio::test]
async fn a_service_whose_keys_nobody_has_says_so() {
    const ADMIN: &str = "an-administrators-key-for-tests";
    const SAID: &str = "there is no key";
    let keys = |further: &[&str]| Settings {
        set: ["auth.mode=keys"]
            .iter()
            .chain(further)
            .map(|pair| (*pair).to_owned())
            .collect(),
        ..Settings::default()
    };
    let cluster = TestCluster::start(keys(&[]));
    assert!(cluster.log().contains(SAID), "{}", cluster.log());
    assert!(cluster.log().contains("SEXTANT_AUTH__ADMIN_KEY"));

    let admin = format!("auth.admin_key={ADMIN}");
    let cluster = TestCluster::start(keys(&[&admin]));
    assert!(!cluster.log().contains(SAID), "{}", cluster.log());
    let headers = [
        ("authorization", format!("Bearer {ADMIN}")),
        ("content-type", "application/json".to_owned()),
    ];
    let body = json!({"name": "reader", "scopes": ["query"]}).to_string();
    let api = cluster.api();
    let made = api.send_with(Method::POST, "/v1/keys", &headers, body.into_bytes());
    made.await.created();

    // Any key suffices, whoever made it.
    let folder = tempfile::tempdir().expect("a folder");
    let data = cluster.into_data(folder.path());
    let cluster = TestCluster::start_with(&data, keys(&[]));
    assert!(!cluster.log().contains(SAID), "{}", cluster.log());
}
