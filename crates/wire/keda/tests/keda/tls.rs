//! Encrypted calls.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sextant_keda::{Error, Tls, proto::external_scaler_client::ExternalScalerClient};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use super::support::{Ground, object};

/// An authority, and the files of a server and of a caller with its certificates.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
        write(folder.path(), "ca.crt", &authority.pem());
        for name in ["server", "caller"] {
            let key = KeyPair::generate().expect("a key");
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let parameters = CertificateParams::new(names).expect("parameters");
            let certificate = parameters.signed_by(&key, &authority).expect("signed");
            write(folder.path(), &format!("{name}.crt"), &certificate.pem());
            write(folder.path(), &format!("{name}.key"), &key.serialize_pem());
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("written before")
    }

    fn server(&self, client_ca: bool) -> Tls {
        Tls {
            certificate: self.path("server.crt"),
            key: self.path("server.key"),
            client_ca: client_ca.then(|| self.path("ca.crt")),
        }
    }

    fn caller(&self, identity: bool) -> ClientTlsConfig {
        let config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.read("ca.crt")));
        match identity {
            true => config.identity(Identity::from_pem(
                self.read("caller.crt"),
                self.read("caller.key"),
            )),
            false => config,
        }
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("written");
}

/// Whether a call is answered.
async fn is_answered(ground: &Ground, caller: ClientTlsConfig) -> bool {
    let endpoint = Channel::from_shared(format!("https://{}", ground.endpoint));
    let endpoint = endpoint.expect("an address").tls_config(caller);
    let channel = endpoint.expect("usable").connect_lazy();
    let mut client = ExternalScalerClient::new(channel);
    client.is_active(object("cpu-8")).await.is_ok()
}

#[tokio::test]
async fn certificate_of_the_server_is_enough_where_no_other_is_asked_for() {
    let files = Files::new();
    let ground = Ground::encrypted(&[("cpu-8", 1)], Some(files.server(false))).await;
    assert!(is_answered(&ground, files.caller(false)).await);
    assert!(is_answered(&ground, files.caller(true)).await);
}

#[tokio::test]
async fn caller_without_a_certificate_is_refused_where_one_is_asked_for() {
    let files = Files::new();
    let ground = Ground::encrypted(&[("cpu-8", 1)], Some(files.server(true))).await;
    assert!(is_answered(&ground, files.caller(true)).await);
    assert!(!is_answered(&ground, files.caller(false)).await);
}

#[tokio::test]
async fn missing_file_is_named() {
    use sextant_keda::{KedaConfig, KedaServer};

    let files = Files::new();
    std::fs::remove_file(files.path("server.key")).expect("removed");
    let config = KedaConfig {
        listen: "127.0.0.1:0".parse().expect("an address"),
        tls: Some(files.server(false)),
    };
    let (_wanted, pools) = tokio::sync::watch::channel(super::support::pools(&[]));
    let error = KedaServer::bind(config, pools).await.expect_err("no key");
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert!(error.to_string().contains("server.key"), "{error}");
}
