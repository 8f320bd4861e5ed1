//! One attempt to deliver a message.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use hmac::{Hmac, Mac};
use sextant_rpc::{DeliveryFailure, Notice, Notify};
use sextant_types::offline::check_webhook;
use sha2::Sha256;
use ureq::{
    Agent,
    config::Config,
    http::Uri,
    tls::{Certificate, RootCerts, TlsConfig},
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{DefaultConnector, NextTimeout},
    },
};

use crate::is_refused;

/// Longest duration of an attempt, from the resolution of the name to the status.
const PATIENCE: Duration = Duration::from_secs(10);

/// How messages are sent.
#[derive(Clone, Default)]
pub struct Options {
    /// Signs messages; without it they are not signed.
    pub secret: Option<String>,
    /// Whether messages may be sent to addresses that are otherwise refused.
    pub allow_link_local: bool,
}

/// Sends messages. Clones share connections.
#[derive(Clone)]
pub struct Webhooks {
    agent: Agent,
    secret: Option<Arc<str>>,
}

impl Webhooks {
    /// A sender that trusts the system's certificates.
    pub fn new(options: Options) -> Self {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            tracing::warn!("no certificate authority was found: webhooks over HTTPS will fail");
        }
        let roots = found.certs.iter();
        let roots: Vec<Certificate<'static>> = roots
            .map(|root| Certificate::from_der(root).to_owned())
            .collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = Config::builder()
            .tls_config(tls)
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            // A proxy would resolve names itself and so bypass the check.
            .proxy(None)
            .user_agent(concat!("sextant/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = CheckedResolver {
            inner: DefaultResolver::default(),
            allow_link_local: options.allow_link_local,
        };
        Self {
            agent: Agent::with_parts(config, DefaultConnector::default(), resolver),
            secret: options.secret.map(Into::into),
        }
    }

    fn send(&self, notice: &Notice) -> Result<u16, DeliveryFailure> {
        check_webhook(&notice.url).map_err(|reason| DeliveryFailure {
            reason: reason.to_owned(),
            retry: false,
        })?;
        let mut request = self
            .agent
            .post(&notice.url)
            .content_type("application/json")
            .header("x-sextant-delivery", &notice.id);
        if let Some(secret) = &self.secret {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
            let now_s = now_s.map_or(0, |since| since.as_secs());
            let value = signature(secret, now_s, &notice.body);
            request = request.header("x-sextant-signature", value);
        }
        let answer = request.send(&notice.body[..]);
        let status = answer.map_err(|error| refusal(&error))?.status().as_u16();
        match status {
            200..=299 => Ok(status),
            _ => Err(DeliveryFailure {
                reason: format!("the receiver answered {status}"),
                // Redirections and most refusals do not change when they are repeated.
                retry: status >= 500 || matches!(status, 408 | 409 | 425 | 429),
            }),
        }
    }
}

#[async_trait]
impl Notify for Webhooks {
    async fn notify(&self, notice: &Notice) -> Result<u16, DeliveryFailure> {
        let (sender, notice) = (self.clone(), notice.clone());
        let sent = tokio::task::spawn_blocking(move || sender.send(&notice));
        sent.await.unwrap_or_else(|_| {
            Err(DeliveryFailure {
                reason: "the sender broke off".to_owned(),
                retry: true,
            })
        })
    }
}

/// The value of `x-sextant-signature` for a body sent at `now_s`, seconds since the Unix epoch.
pub fn signature(secret: &str, now_s: u64, body: &[u8]) -> String {
    // HMAC accepts a key of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key will do");
    mac.update(format!("{now_s}.").as_bytes());
    mac.update(body);
    let code = hex::encode(mac.finalize().into_bytes());
    format!("t={now_s},v1={code}")
}

/// The error without the address: errors of the library may quote it.
fn refusal(error: &ureq::Error) -> DeliveryFailure {
    let (reason, retry) = match error {
        ureq::Error::Timeout(_) => ("the receiver did not answer in time", true),
        ureq::Error::HostNotFound => ("the receiver's name is not known", true),
        ureq::Error::ConnectionFailed => ("no connection to the receiver", true),
        ureq::Error::Other(inner) if inner.is::<RefusedAddress>() => (REFUSED, false),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => ("the webhook is not an address", false),
        ureq::Error::Io(_) => ("the connection to the receiver broke", true),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
            ("the receiver's certificate or TLS was not accepted", true)
        }
        _ => ("the message could not be sent", true),
    };
    DeliveryFailure {
        reason: reason.to_owned(),
        retry,
    }
}

const REFUSED: &str = "the receiver's address is link-local, or one of the machine's own services";

/// An address to which no message is sent.
#[derive(Debug)]
struct RefusedAddress;

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REFUSED)
    }
}

impl std::error::Error for RefusedAddress {}

/// Resolves names, and refuses a name if any of its addresses is refused.
#[derive(Debug)]
struct CheckedResolver {
    inner: DefaultResolver,
    allow_link_local: bool,
}

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let bad = found.iter().any(|address| is_refused(address.ip()));
        if bad && !self.allow_link_local {
            return Err(ureq::Error::Other(Box::new(RefusedAddress)));
        }
        Ok(found)
    }
}
