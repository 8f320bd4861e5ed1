//! Encrypted connections, HTTP/2, and certificates that change.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode, Version,
    body::Bytes,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use sextant_api::{Error, Listener, Tls, TlsFiles, serve};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    double::{Api, Recorder},
    grpc,
    messages::ModelInferResponse,
};

const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

/// A certificate authority and the files of a service that it vouches for.
struct Files {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

struct TlsServer {
    address: SocketAddr,
    tls: Option<Tls>,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
    _api: Api,
}

// === impl Files ===

impl Files {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let files = Self {
            folder: tempfile::tempdir().expect("a folder"),
            authority,
        };
        fs::write(files.path("ca.pem"), files.authority.pem()).expect("written");
        files.renew();
        files
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn certificate(&self) -> (String, String) {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// Replaces the service's certificate and key.
    fn renew(&self) {
        let (certificate, key) = self.certificate();
        fs::write(self.path("certificate.pem"), certificate).expect("written");
        fs::write(self.path("key.pem"), key).expect("written");
    }

    fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("certificate.pem"),
            key: self.path("key.pem"),
            client_ca: None,
        }
    }

    fn client(&self, protocol: &[u8], is_known: bool) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes());
        roots.add(authority.expect("PEM")).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = if is_known {
            let (certificate, key) = self.certificate();
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            let chain = vec![certificate.expect("PEM")];
            builder.with_client_auth_cert(chain, key).expect("usable")
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

async fn start(tls: Option<Tls>) -> TlsServer {
    let api = Api::new(Recorder::answering()).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("an address");
    let listener = Listener {
        socket,
        tls: tls.clone(),
    };
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, api.state.clone(), shutdown.clone()));
    TlsServer {
        address,
        tls,
        shutdown,
        serving,
        _api: api,
    }
}

// === impl TlsServer ===

impl TlsServer {
    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.address)
            .await
            .expect("a connection")
    }

    async fn encrypted(&self, client: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").expect("a name");
        client.connect(name, self.plain().await).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let ended = self.serving.await.expect("no panic");
        ended.expect("a clean end");
    }
}

fn query() -> Request<Full<Bytes>> {
    Request::post("http://localhost/v1/queries")
        .header("host", "localhost")
        .body(Full::from(QUERY))
        .expect("a request")
}

type Http1 = http1::SendRequest<Full<Bytes>>;

async fn http1(stream: TlsStream<TcpStream>) -> Http1 {
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = begun.expect("a connection");
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut Http1) -> hyper::Result<StatusCode> {
    let response = sender.send_request(query()).await?;
    let only = &response.headers()["strict-transport-security"];
    assert_eq!(only, "max-age=31536000");
    let status = response.status();
    response.into_body().collect().await?;
    Ok(status)
}

/// Asks several queries at once on one HTTP/2 connection.
async fn ask_http2<S>(stream: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let begun = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = begun.expect("a connection");
    let connection = tokio::spawn(connection);
    let asked = (0..20).map(|_| sender.clone().send_request(query()));
    for response in futures::future::join_all(asked).await {
        let response = response.expect("an answer");
        assert_eq!(
            (response.status(), response.version()),
            (StatusCode::OK, Version::HTTP_2)
        );
        let body = response
            .into_body()
            .collect()
            .await
            .expect("a whole answer");
        assert!(body.to_bytes().starts_with(b"{\"model\":\"mlp\""));
    }
    drop(sender);
    connection.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn http2_is_spoken_without_encryption_by_who_knows_it() {
    let served = start(None).await;
    ask_http2(served.plain().await).await;
    served.stop().await;
}

#[tokio::test]
async fn encrypted_connections_speak_what_the_client_chooses() {
    let files = Files::new();
    let served = start(Some(Tls::load(files.files()).expect("usable"))).await;
    let stream = served.encrypted(&files.client(b"h2", false)).await;
    ask_http2(stream.expect("trusted")).await;
    let stream = served.encrypted(&files.client(b"http/1.1", false)).await;
    let mut sender = http1(stream.expect("trusted")).await;
    for _ in 0..2 {
        assert_eq!(ask(&mut sender).await.expect("an answer"), StatusCode::OK);
    }
    drop(sender);
    served.stop().await;
}

#[tokio::test]
async fn grpc_is_spoken_over_encrypted_connections() {
    let files = Files::new();
    let served = start(Some(Tls::load(files.files()).expect("usable"))).await;
    let stream = served.encrypted(&files.client(b"h2", false)).await;
    let stream = TokioIo::new(stream.expect("trusted"));
    let begun = http2::handshake(TokioExecutor::new(), stream).await;
    let (mut sender, connection) = begun.expect("a connection");
    let connection = tokio::spawn(connection);
    let path = format!("https://localhost{}", grpc::INFER);
    for _ in 0..2 {
        let call = grpc::request(&path, &[("te", "trailers")], grpc::frame(&grpc::query()));
        let response = sender.send_request(call).await.expect("an answer");
        assert_eq!(response.version(), Version::HTTP_2);
        let ended = grpc::read(response.map(axum::body::Body::new)).await;
        let reply: ModelInferResponse = ended.one();
        assert_eq!((&*reply.model_name, &*reply.id), ("digits", "seven"));
    }
    drop(sender);
    connection.await.expect("no panic").expect("a clean end");
    served.stop().await;
}

fn presented(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let certificates = stream.get_ref().1.peer_certificates().expect("presented");
    certificates[0].clone().into_owned()
}

#[tokio::test]
async fn a_new_certificate_is_taken_up_without_cutting_anyone_off() {
    let files = Files::new();
    let client = files.client(b"http/1.1", false);
    let served = start(Some(Tls::load(files.files()).expect("usable"))).await;
    let tls = served.tls.clone().expect("given");
    let stream = served.encrypted(&client).await.expect("trusted");
    let first = presented(&stream);
    let mut old = http1(stream).await;
    assert_eq!(ask(&mut old).await.expect("an answer"), StatusCode::OK);
    assert!(!tls.reload().expect("usable"));

    fs::write(files.path("certificate.pem"), "half a fi").expect("written");
    let error = tls.reload().expect_err("refused").to_string();
    assert!(
        error.contains("certificate.pem` holds no certificate"),
        "{error}"
    );
    let stream = served.encrypted(&client).await.expect("trusted");
    assert_eq!(presented(&stream), first);

    files.renew();
    // The service looks by itself, too: either of the two finds the new files.
    tls.reload().expect("usable");
    let stream = served.encrypted(&client).await.expect("trusted");
    assert_ne!(presented(&stream), first);
    assert_eq!(ask(&mut old).await.expect("an answer"), StatusCode::OK);
    drop((old, stream));
    served.stop().await;
}

#[tokio::test]
async fn clients_need_a_certificate_where_that_is_asked_for() {
    let files = Files::new();
    let checked = TlsFiles {
        client_ca: Some(files.path("ca.pem")),
        ..files.files()
    };
    let served = start(Some(Tls::load(checked).expect("usable"))).await;
    let stream = served.encrypted(&files.client(b"http/1.1", true)).await;
    let mut known = http1(stream.expect("trusted")).await;
    assert_eq!(ask(&mut known).await.expect("an answer"), StatusCode::OK);
    drop(known);
    // The refusal comes with the first answer: the client's part of the handshake is over before.
    if let Ok(stream) = served.encrypted(&files.client(b"http/1.1", false)).await {
        let mut unknown = http1(stream).await;
        ask(&mut unknown).await.expect_err("refused");
    }
    served.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = Files::new();
    let refused = |change: &dyn Fn(&mut TlsFiles)| {
        let mut changed = files.files();
        change(&mut changed);
        let error = Tls::load(changed).err().expect("refused");
        error.to_string()
    };
    let missing = refused(&|files| files.key = Path::new("/nowhere/key.pem").to_owned());
    assert!(
        missing.contains("/nowhere/key.pem` cannot be read"),
        "{missing}"
    );
    let swapped = refused(&|changed| changed.key = files.path("ca.pem"));
    assert!(swapped.contains("holds no private key"), "{swapped}");
    let (_, other) = files.certificate();
    fs::write(files.path("other.pem"), &other).expect("written");
    let foreign = refused(&|changed| changed.key = files.path("other.pem"));
    assert!(
        foreign.contains("certificate.pem` cannot be used"),
        "{foreign}"
    );
    assert!(!foreign.contains("PRIVATE"), "{foreign}");
    let nobody = refused(&|changed| changed.client_ca = Some(files.path("other.pem")));
    assert!(
        nobody.contains("other.pem` holds no certificate"),
        "{nobody}"
    );
}
