//! Encryption between processes, with proof from both ends.

use std::path::{Path, PathBuf};

use rustls::{client::verify_server_name, server::ParsedCertificate};
use rustls_pki_types::{CertificateDer, ServerName};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::grpc::{Caller, Error};

/// The files of a process: all PEM. Both ends of a connection show a certificate of the same authority;
/// who has none gets nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutualTls {
    /// Certificates of the authority that signed those of the fleet's processes.
    pub ca: PathBuf,
    /// This process's certificate, with those between it and the authority's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name that the certificate of whoever is called must have; by default the host of the
    /// endpoint. For fleets whose processes share a name while their addresses come and go.
    pub server_name: Option<String>,
    /// Whether a caller's certificate must have the name of its role: `dispatcher.sextant` or `api.sextant`.
    /// Without it, too, a certificate that has the name of another role alone is refused.
    pub role_names: bool,
}

/// What the files hold.
pub(crate) struct Material {
    ca: Certificate,
    identity: Identity,
    server_name: Option<String>,
}

impl MutualTls {
    pub(crate) fn read(&self) -> Result<Material, Error> {
        let (ca, certificate, key) = (read(&self.ca)?, read(&self.certificate)?, read(&self.key)?);
        Ok(Material {
            ca: Certificate::from_pem(ca),
            identity: Identity::from_pem(certificate, key),
            server_name: self.server_name.clone(),
        })
    }
}

impl Material {
    pub(crate) fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(self.identity.clone())
            .client_ca_root(self.ca.clone())
    }

    pub(crate) fn client(&self) -> ClientTlsConfig {
        let client = ClientTlsConfig::new()
            .identity(self.identity.clone())
            .ca_certificate(self.ca.clone());
        match &self.server_name {
            Some(name) => client.domain_name(name),
            None => client,
        }
    }
}

/// Whether who shows `certificate` may call as `caller`; `must` where it has to name a role.
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

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
