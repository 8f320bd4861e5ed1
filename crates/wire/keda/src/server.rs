//! A port that KEDA calls.

use std::{future::Future, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::net::TcpListener;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming};

use crate::{Error, Pools, Scaler, error::chain};

/// Time between two pings of a connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Time without an answer to a ping after which the connection ends.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after a shutdown within which open calls end.
const GRACE: Duration = Duration::from_secs(2);

/// Largest request, bytes. KEDA's requests contain the metadata of one trigger.
const MOST_REQUEST_BYTES: usize = 64 << 10;

/// The settings of the port.
#[derive(Debug, Clone)]
pub struct KedaConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Encryption; `None` for none.
    pub tls: Option<Tls>,
}

/// PEM files for encrypted calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, with the intermediate certificates up to the authority's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of the certificate that callers must show; `None` if any caller is accepted.
    pub client_ca: Option<PathBuf>,
}

/// A port that answers only KEDA's calls.
#[derive(Debug)]
pub struct KedaServer {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTlsConfig>,
    scaler: Scaler,
}

// === impl KedaServer ===

impl KedaServer {
    /// Binds the port. Calls are answered once [`run`](Self::run) runs.
    ///
    /// # Errors
    /// [`Error::Listen`] if the port cannot be bound, [`Error::File`] if a certificate or the key cannot be read.
    pub async fn bind(config: KedaConfig, pools: Pools) -> Result<Self, Error> {
        let listen = |error: std::io::Error| Error::Listen {
            address: config.listen,
            reason: error.to_string(),
        };
        let tls = config.tls.map(|tls| tls.read()).transpose()?;
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self {
            listener,
            address,
            tls,
            scaler: Scaler::new(pools),
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers calls until `shutdown`, then ends them and returns within two seconds.
    ///
    /// # Errors
    /// [`Error::Tls`] if the certificates are not usable, [`Error::Serve`] if the system gives no more connections.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let mut server = Server::builder()
            .tcp_nodelay(true)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT));
        if let Some(tls) = self.tls {
            let encrypted = server.tls_config(tls);
            server = encrypted.map_err(|error| Error::Tls(chain(&error)))?;
        }
        let service = self.scaler.service();
        let scaler = self.scaler;
        let ended = scaler.ended();
        let serving = server
            .add_service(service.max_decoding_message_size(MOST_REQUEST_BYTES))
            .serve_with_incoming_shutdown(
                TcpIncoming::from(self.listener).with_nodelay(Some(true)),
                ended,
            );
        let ending = async {
            shutdown.await;
            scaler.end();
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = serving => served.map_err(|error| Error::Serve(chain(&error))),
            () = ending => Ok(()),
        }
    }
}

// === impl Tls ===

impl Tls {
    fn read(&self) -> Result<ServerTlsConfig, Error> {
        let identity = Identity::from_pem(file(&self.certificate)?, file(&self.key)?);
        let config = ServerTlsConfig::new().identity(identity);
        Ok(match &self.client_ca {
            Some(path) => config.client_ca_root(Certificate::from_pem(file(path)?)),
            None => config,
        })
    }
}

fn file(path: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File {
        path: path.clone(),
        reason: error.to_string(),
    })
}
