//! A small HTTP/1.1 client for one server on this machine, with one connection that is kept open.
//!
//! It exists so that xtask is quick to build, and so that measurements include little of the client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The response to a request.
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The body, undecoded.
    pub body: Vec<u8>,
    /// Whether the server closes the connection after it.
    pub closes: bool,
    /// When to try again, if the server says it.
    pub retry_after: Option<Duration>,
}

impl Response {
    /// The body as JSON if the status is a success, otherwise an error that quotes the body.
    pub fn json(&self) -> Result<Value> {
        if !(200..300).contains(&self.status) {
            bail!(
                "the server answered {}: {}",
                self.status,
                String::from_utf8_lossy(&self.body)
            );
        }
        serde_json::from_slice(&self.body).context("the server's answer is not JSON")
    }
}

/// One open connection.
pub struct Connection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    head: String,
}

impl Connection {
    /// Connects. Requests wait at most `timeout` for a response.
    pub fn open(address: SocketAddr, timeout: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .with_context(|| format!("cannot connect to `{address}`"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self {
            address,
            stream: BufReader::with_capacity(64 << 10, stream),
            head: String::new(),
        })
    }

    /// `GET path`.
    pub fn get(&mut self, path: &str) -> Result<Response> {
        self.send("GET", path, "application/json", &[])
    }

    /// `POST path` with a JSON body.
    pub fn post(&mut self, path: &str, body: &Value) -> Result<Response> {
        self.send(
            "POST",
            path,
            "application/json",
            body.to_string().as_bytes(),
        )
    }

    /// `POST path` with a body of two parts: JSON followed by tensors, as in the Open Inference Protocol.
    pub fn post_binary(&mut self, path: &str, json: &str, tensors: &[u8]) -> Result<Response> {
        let kind = format!(
            "application/octet-stream\r\ninference-header-content-length: {}",
            json.len()
        );
        self.send("POST", path, &kind, &[json.as_bytes(), tensors].concat())
    }

    /// Sends a request and reads its response.
    pub fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Response> {
        self.ask(method, path, kind, body)?;
        self.receive()
            .with_context(|| format!("no valid answer to `{method} {path}`"))
    }

    /// Sends a request without reading the response.
    pub fn ask(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\naccept: application/json\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len(),
        );
        let request = [head.as_bytes(), body].concat();
        let sent = self.stream.get_mut().write_all(&request);
        sent.context("cannot send the request")
    }

    fn receive(&mut self) -> Result<Response> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.context("not an HTTP status line")?;
        let (mut length, mut chunked, mut closes) = (0, false, false);
        let mut retry_after = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                None => break,
                Some(("content-length", value)) => length = value.trim().parse()?,
                Some(("connection", value)) => closes = value.trim() == "close",
                Some(("retry-after", value)) => {
                    retry_after = value.trim().parse().map(Duration::from_secs).ok();
                }
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                Some(_) => {}
            }
        }
        let body = if chunked {
            self.chunks()?
        } else {
            self.exactly(length)?
        };
        Ok(Response {
            status,
            body,
            closes,
            retry_after,
        })
    }

    fn line(&mut self) -> Result<String> {
        self.head.clear();
        if self.stream.read_line(&mut self.head)? == 0 {
            bail!("the server closed the connection");
        }
        Ok(self.head.trim_end().to_owned())
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.line()?;
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16)?;
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Responds to the requests of one connection with the given texts, in order.
    fn server(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = [0; 4096];
            for answer in answers {
                assert!(stream.read(&mut buffer).unwrap() > 0);
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn reads_bodies_with_a_length_and_in_chunks_on_one_connection() {
        let address = server(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
            "HTTP/1.1 422 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        ]);
        let mut connection = Connection::open(address, Duration::from_secs(10)).unwrap();
        let first = connection.get("/one").unwrap();
        assert_eq!(first.json().unwrap()["a"], 1);
        let second = connection.get("/two").unwrap();
        assert_eq!(
            (second.status, second.body.as_slice()),
            (422, &b"abcde"[..])
        );
        assert!(
            second
                .json()
                .unwrap_err()
                .to_string()
                .contains("422: abcde")
        );
    }

    #[test]
    fn a_connection_that_ends_early_is_an_error() {
        let address = server(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"]);
        let mut connection = Connection::open(address, Duration::from_secs(10)).unwrap();
        assert!(connection.get("/").is_err());
    }
}
