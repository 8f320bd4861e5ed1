//! Both ends authenticate themselves.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sextant_links::{
    front::Connector,
    grpc::{Caller, ConnectorConfig, Error, GrpcConfig, GrpcConnector, MutualTls},
};

use crate::{
    double::{infer, part, there},
    process::{FIRST, Process, config, hello, reach},
};

/// An authority with the files of one process.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new(Vec::new()).expect("sound");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = authority.self_signed(&key).expect("signed");
        let made = Self {
            folder,
            issuer: Issuer::new(authority, key),
        };
        std::fs::write(made.file("ca.pem"), certificate.pem()).expect("written");
        made.issue(names);
        made
    }

    /// Replaces the certificate of the process.
    fn issue(&self, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let process = CertificateParams::new(names).expect("sound names");
        let process = process.signed_by(&key, &self.issuer).expect("signed");
        let write = |name: &str, text: String| {
            std::fs::write(self.file(name), text).expect("written");
        };
        write("certificate.pem", process.pem());
        write("key.pem", key.serialize_pem());
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tls(&self) -> MutualTls {
        MutualTls {
            ca: self.file("ca.pem"),
            certificate: self.file("certificate.pem"),
            key: self.file("key.pem"),
            server_name: None,
            role_names: false,
        }
    }
}

fn connector(tls: Option<MutualTls>) -> GrpcConnector {
    let config = ConnectorConfig {
        tls,
        ..ConnectorConfig::new(hello(Caller::Dispatcher, Some(FIRST)))
    };
    GrpcConnector::new(config).expect("the files can be read")
}

async fn encrypted(authority: &Authority) -> Process {
    Process::start(GrpcConfig {
        tls: Some(authority.tls()),
        ..config()
    })
    .await
}

async fn is_refused(connector: &GrpcConnector, endpoint: &str) {
    let worker = connector.connect_worker(there(), endpoint);
    assert!(worker.await.is_err(), "a stranger reached the worker");
    let mailbox = connector.connect_mailbox(there(), endpoint);
    assert!(mailbox.await.is_err(), "a stranger reached the mailbox");
}

#[tokio::test]
async fn only_processes_with_a_certificate_talk() {
    let authority = Authority::new(&["127.0.0.1"]);
    let process = encrypted(&authority).await;
    let reached = reach(&connector(Some(authority.tls())), &process.endpoint).await;
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_ok());

    // Without encryption, and with a certificate of another authority.
    is_refused(&connector(None), &process.endpoint).await;
    let stranger = Authority::new(&["127.0.0.1"]);
    is_refused(&connector(Some(stranger.tls())), &process.endpoint).await;
    let disguised = MutualTls {
        ca: authority.file("ca.pem"),
        ..stranger.tls()
    };
    is_refused(&connector(Some(disguised)), &process.endpoint).await;
    process.stop().await;
}

#[tokio::test]
async fn the_other_end_must_be_who_it_is_taken_for() {
    let authority = Authority::new(&["workers.example"]);
    let process = encrypted(&authority).await;
    is_refused(&connector(Some(authority.tls())), &process.endpoint).await;
    let named = MutualTls {
        server_name: Some("workers.example".to_owned()),
        ..authority.tls()
    };
    let reached = reach(&connector(Some(named)), &process.endpoint).await;
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_ok());
    process.stop().await;
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let authority = Authority::new(&["127.0.0.1"]);
    let tls = MutualTls {
        key: Path::new("/nowhere/key.pem").to_owned(),
        ..authority.tls()
    };
    let config = ConnectorConfig {
        tls: Some(tls),
        ..ConnectorConfig::new(hello(Caller::Dispatcher, None))
    };
    match GrpcConnector::new(config) {
        Err(error @ Error::File { .. }) => {
            assert!(error.to_string().contains("/nowhere/key.pem"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there is no such file"),
    }
}

#[tokio::test]
async fn a_certificate_that_names_a_role_lets_nobody_play_another() {
    let calling = |caller, tls: MutualTls| {
        let token = (caller == Caller::Dispatcher).then_some(FIRST);
        let config = ConnectorConfig {
            tls: Some(tls),
            ..ConnectorConfig::new(hello(caller, token))
        };
        GrpcConnector::new(config).expect("the files can be read")
    };
    for (names, must, lets) in [
        (&["127.0.0.1"][..], false, [true, true]),
        (&["127.0.0.1"], true, [false, false]),
        (&["127.0.0.1", "api.sextant"], false, [false, true]),
        (&["127.0.0.1", "dispatcher.sextant"], true, [true, false]),
        (
            &["127.0.0.1", "api.sextant", "dispatcher.sextant"],
            true,
            [true, true],
        ),
    ] {
        let authority = Authority::new(names);
        let config = GrpcConfig {
            tls: Some(MutualTls {
                role_names: must,
                ..authority.tls()
            }),
            ..config()
        };
        let process = Process::start(config).await;
        for (caller, lets) in [Caller::Dispatcher, Caller::FrontEnd].into_iter().zip(lets) {
            let link = calling(caller, authority.tls());
            let link = link.connect_worker(there(), &process.endpoint).await;
            assert_eq!(link.is_ok(), lets, "{names:?}, must {must}, as {caller}");
            if let Err(error) = link {
                assert!(error.to_string().contains("lacks the name"), "{error}");
            }
        }
        process.stop().await;
    }
}

/// A renewal of certificates replaces their files.
#[tokio::test]
async fn new_connections_show_the_certificates_that_the_files_hold() {
    let authority = Authority::new(&["before.example"]);
    let process = encrypted(&authority).await;
    let named = |name: &str| {
        connector(Some(MutualTls {
            server_name: Some(name.to_owned()),
            ..authority.tls()
        }))
    };
    let (before, after) = (named("before.example"), named("after.example"));
    let open = reach(&before, &process.endpoint).await;
    is_refused(&after, &process.endpoint).await;

    authority.issue(&["after.example"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while after
        .connect_worker(there(), &process.endpoint)
        .await
        .is_err()
    {
        assert!(
            Instant::now() < deadline,
            "the new certificate is not shown"
        );
        tokio::task::yield_now().await;
    }
    is_refused(&before, &process.endpoint).await;
    assert!(
        infer(&*open.worker, vec![part(1.0)]).await.is_ok(),
        "an open link goes on"
    );

    // A caller also shows the content of its files.
    let own = Authority::new(&["a.stranger.example"]);
    let caller = connector(Some(MutualTls {
        ca: authority.file("ca.pem"),
        server_name: Some("after.example".to_owned()),
        ..own.tls()
    }));
    is_refused(&caller, &process.endpoint).await;
    for file in ["certificate.pem", "key.pem"] {
        std::fs::copy(authority.file(file), own.file(file)).expect("copied");
    }
    while caller
        .connect_worker(there(), &process.endpoint)
        .await
        .is_err()
    {
        assert!(Instant::now() < deadline, "the old certificate is shown");
        tokio::task::yield_now().await;
    }
    drop(open);
    process.stop().await;
}
