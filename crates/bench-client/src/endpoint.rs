//! Where a load is sent.

use std::{io, sync::Arc};

use http::{HeaderMap, HeaderValue, Uri, header};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio_rustls::TlsConnector;

use crate::Error;

/// A server, and how it is spoken to.
#[derive(Clone)]
pub struct Endpoint {
    /// As it was given.
    server: String,
    /// What connections are opened to: host and port.
    pub(crate) address: String,
    /// Path before every path.
    prefix: String,
    pub(crate) headers: HeaderMap,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
}

// === impl Endpoint ===

impl Endpoint {
    /// A server by its address, `http://host:port/prefix`. `https://` takes `tls`; every request carries `headers`.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(
        server: &str,
        tls: Option<Arc<ClientConfig>>,
        mut headers: HeaderMap,
    ) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Address {
            server: server.to_owned(),
            reason: reason.to_owned(),
        };
        let uri: Uri = server.parse().map_err(|_| refuse("it is no address"))?;
        let host = uri.host().ok_or_else(|| refuse("it names no host"))?;
        let (port, tls) = match (uri.scheme_str(), tls) {
            (Some("http"), _) => (80, None),
            (Some("https"), Some(tls)) => {
                let name = host.trim_start_matches('[').trim_end_matches(']');
                let name = ServerName::try_from(name.to_owned());
                let name = name.map_err(|_| refuse("no certificate can name its host"))?;
                (443, Some((TlsConnector::from(tls), name)))
            }
            _ => return Err(refuse("it must begin with `http://` or `https://`")),
        };
        let authority = uri.authority().map(http::uri::Authority::as_str);
        let authority = authority.and_then(|it| HeaderValue::from_str(it).ok());
        headers.insert(
            header::HOST,
            authority.ok_or_else(|| refuse("it is no address"))?,
        );
        Ok(Self {
            server: server.trim_end_matches('/').to_owned(),
            address: format!("{host}:{}", uri.port_u16().unwrap_or(port)),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            headers,
            tls,
        })
    }

    /// What a request line names for `path`, which begins with a slash.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri, Error> {
        let uri = format!("{}{path}", self.prefix).parse();
        uri.map_err(|_| Error::Plan(format!("the path `{path}` is none: `/v1/queries` is one")))
    }

    /// The server as somebody named it, and why it cannot be had.
    pub(crate) fn unreachable(&self, source: io::Error) -> Error {
        let server = self.server.clone();
        Error::Unreachable { server, source }
    }
}

impl std::fmt::Debug for Endpoint {
    /// Without the headers, which may hold a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(server: &str) -> Result<Endpoint, Error> {
        Endpoint::new(server, None, HeaderMap::new())
    }

    #[test]
    fn ports_and_prefixes_have_defaults() {
        let plain = endpoint("http://localhost").expect("an address");
        assert_eq!(plain.address, "localhost:80");
        assert_eq!(plain.uri("/v1/queries").expect("a path"), "/v1/queries");
        let behind = endpoint("http://[::1]:8080/models/").expect("an address");
        assert_eq!(behind.address, "[::1]:8080");
        assert_eq!(behind.uri("/v1").expect("a path"), "/models/v1");
        assert_eq!(behind.headers[header::HOST], "[::1]:8080");
    }

    #[test]
    fn what_is_no_address_is_named() {
        for wrong in ["localhost", "ftp://localhost", "https://localhost"] {
            let error = endpoint(wrong).expect_err("refused").to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
