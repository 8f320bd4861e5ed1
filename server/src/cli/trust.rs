//! Which servers are trusted behind `https://`.

use std::{io, path::PathBuf, sync::Arc};

use reqwest::{Certificate, ClientBuilder, Url};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::ConfigVerifierExt;

use super::Error;

/// The environment variable that names a file of certificates, PEM.
const CA: &str = "SEXTANT_CA";

/// Lets a client speak TLS where `server` asks for it. Trusted is what the system trusts; where
/// `SEXTANT_CA` names a file, its certificates alone.
pub fn trusting(builder: ClientBuilder, server: &Url) -> Result<ClientBuilder, Error> {
    // Fails if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if server.scheme() != "https" {
        // The system's certificates need not be read.
        return Ok(builder.tls_certs_only([]));
    }
    match std::env::var_os(CA).filter(|path| !path.is_empty()) {
        Some(path) => Ok(builder.tls_certs_only(certificates(path.into())?)),
        None => Ok(builder),
    }
}

/// The same trust for connections that are not reqwest's; `None` where the server is spoken to without TLS.
pub fn config(server: &Url) -> Result<Option<Arc<ClientConfig>>, Error> {
    // Fails if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if server.scheme() != "https" {
        return Ok(None);
    }
    let config = match std::env::var_os(CA).filter(|path| !path.is_empty()) {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(authorities(&path.into())?);
            ClientConfig::builder()
                .with_root_certificates(roots)
                .with_no_client_auth()
        }
        None => ClientConfig::with_platform_verifier()
            .map_err(|error| Error::Runtime(io::Error::other(error)))?,
    };
    Ok(Some(Arc::new(config)))
}

fn authorities(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = std::fs::read(path).map_err(|source| Error::Io {
        path: path.clone(),
        source,
    })?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.ok().filter(|all| !all.is_empty());
    certificates.ok_or_else(|| without_certificate(path))
}

fn without_certificate(path: &std::path::Path) -> Error {
    let path = path.display();
    Error::Usage(format!(
        "`{CA}` names `{path}`, which holds no certificate in PEM"
    ))
}

fn certificates(path: PathBuf) -> Result<Vec<Certificate>, Error> {
    let pem = match std::fs::read(&path) {
        Ok(pem) => pem,
        Err(source) => return Err(Error::Io { path, source }),
    };
    let certificates = Certificate::from_pem_bundle(&pem).ok();
    let certificates = certificates.filter(|certificates| !certificates.is_empty());
    certificates.ok_or_else(|| without_certificate(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_wrong_usage() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let missing = certificates(path.clone()).expect_err("refused");
        assert!(matches!(missing, Error::Io { .. }), "{missing}");
        std::fs::write(&path, "no certificate").expect("written");
        let empty = certificates(path).expect_err("refused").to_string();
        assert!(empty.contains("holds no certificate"), "{empty}");
    }
}
