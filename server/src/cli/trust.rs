//! Which servers are trusted behind `https://`.

use std::path::PathBuf;

use reqwest::{Certificate, ClientBuilder, Url};

use super::Error;

/// The environment variable that names a file of certificates, PEM.
const CA: &str = "SEXTANT_CA";

/// Lets a client speak TLS where `server` asks for it. Trusted is what the system trusts; where
/// `SEXTANT_CA` names a file, its certificates alone.
pub fn trusting(builder: ClientBuilder, server: &Url) -> Result<ClientBuilder, Error> {
    // Fails where it was done before.
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

fn certificates(path: PathBuf) -> Result<Vec<Certificate>, Error> {
    let pem = match std::fs::read(&path) {
        Ok(pem) => pem,
        Err(source) => return Err(Error::Io { path, source }),
    };
    let certificates = Certificate::from_pem_bundle(&pem).ok();
    let certificates = certificates.filter(|certificates| !certificates.is_empty());
    certificates.ok_or_else(|| {
        let path = path.display();
        Error::Usage(format!(
            "`{CA}` names `{path}`, which holds no certificate in PEM"
        ))
    })
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
