//! Encryption between processes, with authentication of both ends.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    server::{ParsedCertificate, WebPkiClientVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::grpc::{Caller, Error};

/// Time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The files of a process, all in PEM. Both ends of a connection show a certificate of the same authority. A process
/// without one is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutualTls {
    /// Certificates of the authority that signed those of the fleet's processes.
    pub ca: PathBuf,
    /// This process's certificate, with the intermediate certificates up to the authority's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name that the certificate of a called process must have; by default the host of the endpoint. For fleets
    /// whose processes share a name while their addresses change.
    pub server_name: Option<String>,
    /// Whether a caller's certificate must have the name of its role: `dispatcher.sextant` or `api.sextant`. If not, a
    /// certificate that only has the name of another role is still refused.
    pub role_names: bool,
}

/// The configuration from the files of a process, which may be replaced while it runs, for example when certificates
/// are renewed. New connections use the present content of the files; open ones go on.
pub(crate) struct RenewedConfig<T> {
    files: MutualTls,
    read: fn(&MutualTls) -> Result<T, Error>,
    last: Mutex<(T, Instant)>,
}

/// The certificates that a caller shows and requires.
pub(crate) type ClientTls = RenewedConfig<ClientTlsConfig>;

/// The certificates that a called process shows and requires.
pub(crate) type ServerTls = RenewedConfig<Arc<ServerConfig>>;

impl MutualTls {
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn calling(self) -> Result<ClientTls, Error> {
        RenewedConfig::open(self, |files| {
            let (ca, certificate, key) = (
                read(&files.ca)?,
                read(&files.certificate)?,
                read(&files.key)?,
            );
            let client = ClientTlsConfig::new()
                .identity(Identity::from_pem(certificate, key))
                .ca_certificate(Certificate::from_pem(ca));
            Ok(match &files.server_name {
                Some(name) => client.domain_name(name),
                None => client,
            })
        })
    }

    /// # Errors
    /// If a file cannot be read, or has other content.
    pub(crate) fn called(self) -> Result<ServerTls, Error> {
        RenewedConfig::open(self, |files| Ok(Arc::new(files.server()?)))
    }

    fn server(&self) -> Result<ServerConfig, Error> {
        let mut authorities = RootCertStore::empty();
        for authority in certificates(&self.ca)? {
            let added = authorities.add(authority);
            added.map_err(|error| unusable(&self.ca, &error))?;
        }
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?);
        let key = key.map_err(|error| unusable(&self.key, &error))?;
        let of_certificate = |error: &dyn std::fmt::Display| unusable(&self.certificate, error);
        let provider = Arc::new(ring::default_provider());
        let callers =
            WebPkiClientVerifier::builder_with_provider(authorities.into(), Arc::clone(&provider));
        let callers = callers
            .build()
            .map_err(|error| unusable(&self.ca, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| of_certificate(&error))?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain, key)
            .map_err(|error| of_certificate(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

impl<T: Clone> RenewedConfig<T> {
    fn open(files: MutualTls, read: fn(&MutualTls) -> Result<T, Error>) -> Result<Self, Error> {
        let last = Mutex::new((read(&files)?, Instant::now()));
        Ok(Self { files, read, last })
    }

    /// The configuration from the files as they were at most [`LOOK_EVERY`] ago; the previous one if the files cannot
    /// be used.
    pub(crate) fn now(&self) -> T {
        let mut last = self.last.lock();
        if last.1.elapsed() >= LOOK_EVERY {
            last.1 = Instant::now();
            match (self.read)(&self.files) {
                Ok(read) => last.0 = read,
                Err(error) => {
                    tracing::error!(%error, "connections of the fleet get the certificate of before");
                }
            }
        }
        last.0.clone()
    }
}

/// Checks whether the holder of `certificate` may call as `caller`. With `must`, the certificate has to name a role.
pub(crate) fn check_role(
    certificate: &CertificateDer<'_>,
    caller: Caller,
    must: bool,
) -> Result<(), String> {
    let certificate = ParsedCertificate::try_from(certificate);
    let certificate = certificate.map_err(|error| format!("an unusable certificate: {error}"))?;
    let names = |caller: Caller| {
        let name = ServerName::try_from(caller.certificate_name());
        name.is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
    };
    let named = Caller::ALL.into_iter().any(names);
    if names(caller) || (!named && !must) {
        return Ok(());
    }
    Err(format!(
        "the certificate of the {caller} lacks the name `{}`",
        caller.certificate_name()
    ))
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let content = read(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let read = read.map_err(|error| unusable(path, &error))?;
    match read.is_empty() {
        true => Err(unusable(path, &"it holds no certificate in PEM")),
        false => Ok(read),
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("`{}`: {error}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
