use std::time::Duration;

use sextant_objects_s3::{Credentials, Error, S3Store, Secret};
use sextant_test_servers::s3::S3;

use super::support::{HASTE, config};

#[tokio::test]
async fn a_setting_that_cannot_be_is_refused_by_name() {
    let server = S3::start();
    let refused = |adjust: fn(&mut sextant_objects_s3::S3Config)| {
        let mut config = config(&server);
        adjust(&mut config);
        async move {
            match S3Store::open(config).await {
                Err(Error::Config { setting, problem }) => {
                    assert!(!problem.contains("hunter2"), "{problem}");
                    setting
                }
                other => panic!("{other:?} instead of a refusal"),
            }
        }
    };
    assert_eq!(refused(|it| it.bucket = "s3://b".into()).await, "bucket");
    assert_eq!(refused(|it| it.prefix = "no-slash".into()).await, "prefix");
    assert_eq!(refused(|it| it.part_bytes = 1 << 20).await, "part_bytes");
    let endpoint = refused(|it| it.endpoint = Some("localhost:9".into())).await;
    assert_eq!(endpoint, "endpoint");
    let endpoint = refused(|it| it.endpoint = Some("http://me:hunter2@host".into())).await;
    assert_eq!(endpoint, "endpoint");
}

#[tokio::test]
async fn a_bucket_that_cannot_be_used_is_said_to_be() {
    let server = S3::start();
    let missing = sextant_objects_s3::S3Config {
        bucket: "nowhere".into(),
        ..config(&server)
    };
    let error = S3Store::open(missing).await.unwrap_err().to_string();
    assert!(
        error.contains("`nowhere`") && error.contains("create it"),
        "{error}"
    );

    let stranger = sextant_objects_s3::S3Config {
        credentials: Credentials::Given {
            access_key: server.access_key().into(),
            secret_key: Secret::new("hunter2"),
        },
        ..config(&server)
    };
    assert!(!format!("{stranger:?}").contains("hunter2"), "{stranger:?}");
    let error = S3Store::open(stranger).await.unwrap_err().to_string();
    assert!(error.contains("credentials"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_profile_that_is_not_there_is_named() {
    let server = S3::start();
    let config = sextant_objects_s3::S3Config {
        credentials: Credentials::Profile("nobodys".into()),
        ..config(&server)
    };
    let error = S3Store::open(config).await.unwrap_err().to_string();
    assert!(error.contains("`nobodys`"), "{error}");
    assert_eq!(server.faults().requests(), 0);
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_in_clear() {
    let server = S3::start();
    let config = sextant_objects_s3::S3Config {
        endpoint: Some(server.endpoint().replace("http:", "https:")),
        max_attempts: 2,
        connect_timeout: Duration::from_millis(100),
        ..config(&server)
    };
    assert!(S3Store::open(config).await.is_err());
    assert_eq!(server.faults().requests(), 0);
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_soon() {
    let mut server = S3::start();
    let mut config = config(&server);
    config.timeout = HASTE;
    config.max_attempts = 3;
    server.kill();
    assert!(S3Store::open(config.clone()).await.is_err());
    server.restart();
    S3Store::open(config.clone()).await.expect("it is back");
    server.stop();
    assert!(S3Store::open(config.clone()).await.is_err());
    server.cont();
    S3Store::open(config).await.expect("it goes on");
}
