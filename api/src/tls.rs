//! Encryption of the HTTP API: certificates from files that may be replaced while the service runs.
//! A connection keeps the certificate that it began with.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_rustls::TlsAcceptor;

/// Protocols that clients may choose, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Time between two checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where certificates and keys lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM, the service's own first.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Certificates of the authorities that clients' certificates are checked against, PEM; `None`:
    /// clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// What encrypts connections; clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    loaded: Mutex<Content>,
    config: ArcSwap<ServerConfig>,
}

/// The files as they were read last.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{path}` cannot be read")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("`{path}` holds no {what} in PEM")]
    Pem {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Certificate and key cannot be used together, or are of a kind that is not supported.
    #[error("`{path}` cannot be used: {reason}")]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

// === impl Tls ===

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let content = Content::read(&files)?;
        let config = content.config(&files)?;
        Ok(Self(Arc::new(Inner {
            files,
            loaded: Mutex::new(content),
            config: ArcSwap::from_pointee(config),
        })))
    }

    /// Reads the files again, and returns whether they have changed. After an error, new
    /// connections get the certificate that they got before.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let content = Content::read(&self.0.files)?;
        let mut loaded = self.0.loaded.lock();
        if *loaded == content {
            return Ok(false);
        }
        let config = content.config(&self.0.files)?;
        self.0.config.store(Arc::new(config));
        *loaded = content;
        Ok(true)
    }

    /// Reads the files again whenever they change, and at once after SIGHUP.
    pub(crate) async fn follow(&self) -> Infallible {
        let mut hangups = signal(SignalKind::hangup()).ok();
        let mut failed = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = hangup(hangups.as_mut()) => {}
            }
            let tls = self.clone();
            let Ok(reloaded) = tokio::task::spawn_blocking(move || tls.reload()).await else {
                continue;
            };
            match reloaded {
                Ok(changed) if changed || failed => {
                    tracing::info!("new connections get the certificate as it is now");
                }
                Ok(_) => {}
                Err(ref error) if failed => tracing::debug!(%error, "the certificate is unusable"),
                Err(ref error) => {
                    tracing::error!(%error, "new connections get the certificate of before");
                }
            }
            failed = reloaded.is_err();
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.config.load_full())
    }
}

impl Content {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| TlsError::Read {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn config(&self, files: &TlsFiles) -> Result<ServerConfig, TlsError> {
        let unusable = |reason: &dyn ToString| TlsError::Unusable {
            path: files.certificate.clone(),
            reason: reason.to_string(),
        };
        let chain = certificates(&files.certificate, &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| TlsError::Pem {
            path: files.key.clone(),
            what: "private key",
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match files.client_ca.as_deref().zip(self.client_ca.as_deref()) {
            Some((path, pem)) => builder.with_client_cert_verifier(verifier(path, pem, provider)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

async fn hangup(signals: Option<&mut Signal>) {
    match signals {
        Some(signals) => drop(signals.recv().await),
        None => std::future::pending().await,
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| TlsError::Pem {
        path: path.to_owned(),
        what: "certificate",
    })
}

fn verifier(
    path: &Path,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |reason: String| TlsError::Unusable {
        path: path.to_owned(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unusable(error.to_string()))
}
