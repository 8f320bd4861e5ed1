//! One connection: a request, its answer, the end. Each connection carries only one request, so the
//! end of an answer is that of the connection, and bodies need not be parsed.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpStream},
    sync::PoisonError,
    thread,
    time::Duration,
};

use super::proxy::{Fault, Faults, Request};

/// Longest head that is accepted, bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

const SLOW_DOWN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code>\
                         <Message>Reduce your request rate.</Message></Error>";

/// The first line and the headers of a request or an answer, and the part of the body that was read
/// with them.
struct Head {
    lines: Vec<String>,
    body: Vec<u8>,
}

pub(super) fn serve(client: &TcpStream, server_port: u16, faults: &Faults) -> io::Result<()> {
    client.set_nodelay(true)?;
    let Some(head) = Head::read(client)? else {
        return Ok(());
    };
    let mut request = head.request()?;
    let fault = faults.decide(&mut request);
    match fault {
        Some(Fault::SlowDown) => return slow_down(client, &head),
        Some(Fault::Refuse) => return client.shutdown(Shutdown::Both),
        Some(Fault::Delay(time)) => delay(time),
        _ => {}
    }
    let key = faults.key(&request.path);
    let alone = request.changes_key().then(|| key.write());
    let shared = alone.is_none().then(|| key.read());
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port))?;
    server.set_nodelay(true)?;
    let passed = thread::scope(|scope| {
        scope.spawn(|| {
            let limit = match fault {
                Some(Fault::CutRequest { after_bytes }) => Some(after_bytes),
                _ => None,
            };
            let sent = send(&head, client, &server, limit);
            if sent.is_err() || limit.is_some() {
                client.shutdown(Shutdown::Both).ok();
            }
            server.shutdown(Shutdown::Write).ok();
        });
        let passed = answer(&server, client, fault);
        // This also ends the other thread's reading.
        if !matches!(fault, Some(Fault::Stall { .. })) || passed.is_err() {
            client.shutdown(Shutdown::Both).ok();
        }
        server.shutdown(Shutdown::Both).ok();
        drop((
            alone.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
            shared.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
        ));
        passed
    });
    client.shutdown(Shutdown::Both).ok();
    passed
}

/// Passes on the request, with at most `limit` bytes of its body, until the client closes the
/// connection.
fn send(
    head: &Head,
    mut client: &TcpStream,
    mut server: &TcpStream,
    limit: Option<u64>,
) -> io::Result<()> {
    server.write_all(&head.with_header("connection", "close"))?;
    let body = head.body.as_slice();
    match limit {
        Some(limit) => io::copy(&mut body.chain(client).take(limit), &mut server)?,
        None => {
            server.write_all(body)?;
            io::copy(&mut client, &mut server)?
        }
    };
    Ok(())
}

/// Passes back the answer, as far as the fault permits.
fn answer(mut server: &TcpStream, mut client: &TcpStream, fault: Option<Fault>) -> io::Result<()> {
    let mut head = Head::read(server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    while head.lines[0].contains(" 100 ") {
        client.write_all(&head.as_bytes())?;
        let early = std::mem::take(&mut head.body);
        head = Head::read(early.chain(server))?.ok_or(io::ErrorKind::UnexpectedEof)?;
    }
    let limit = match fault {
        Some(Fault::LoseResponse) => {
            io::copy(&mut server, &mut io::sink())?;
            return Ok(());
        }
        Some(Fault::CutResponse { after_bytes } | Fault::Stall { after_bytes }) => after_bytes,
        Some(Fault::Truncate { keep_bytes }) => {
            let kept = head.body_bytes().map_or(0, |length| length.min(keep_bytes));
            client.write_all(&head.with_header("content-length", &kept.to_string()))?;
            let body = std::mem::take(&mut head.body);
            io::copy(&mut body.chain(server).take(kept), &mut client)?;
            return Ok(());
        }
        _ => u64::MAX,
    };
    client.write_all(&head.as_bytes())?;
    let body = std::mem::take(&mut head.body);
    io::copy(&mut body.chain(server).take(limit), &mut client)?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the lost time is the fault asked for"
)]
fn delay(time: Duration) {
    thread::sleep(time);
}

fn slow_down(mut client: &TcpStream, head: &Head) -> io::Result<()> {
    if head.header("expect").is_some() {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    // Unread bytes would reset the connection before the client has read the answer.
    let rest = head.body_bytes().unwrap_or(0) - head.body.len() as u64;
    io::copy(&mut client.take(rest), &mut io::sink())?;
    let length = SLOW_DOWN.len();
    write!(
        client,
        "HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{SLOW_DOWN}"
    )?;
    client.shutdown(Shutdown::Write)
}

// === impl Request ===

impl Request {
    /// Whether it changes the object of its path. Parts of an upload do not change it yet.
    fn changes_key(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD") && !self.query.contains("partNumber=")
    }
}

// === impl Head ===

impl Head {
    /// `None` if the other side closed the connection without sending anything.
    fn read(mut from: impl Read) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 8192];
        loop {
            if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
                let body = bytes.split_off(end + 4);
                let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let lines = text.split("\r\n").map(str::to_owned).collect();
                return Ok(Some(Self { lines, body }));
            }
            let read = from.read(&mut buffer)?;
            if read == 0 && bytes.is_empty() {
                return Ok(None);
            }
            if read == 0 || bytes.len() > MAX_HEAD_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            bytes.extend_from_slice(&buffer[..read]);
        }
    }

    fn request(&self) -> io::Result<Request> {
        let mut words = self.lines[0].split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            first_byte: self.first_byte(),
            number: 0,
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.lines.iter().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn first_byte(&self) -> Option<u64> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        range.split('-').next()?.parse().ok()
    }

    fn body_bytes(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    fn as_bytes(&self) -> Vec<u8> {
        format!("{}\r\n\r\n", self.lines.join("\r\n")).into_bytes()
    }

    /// The head with one header replaced.
    fn with_header(&self, name: &str, value: &str) -> Vec<u8> {
        let is_other = |line: &&String| {
            let key = line.split(':').next().unwrap_or_default();
            !key.eq_ignore_ascii_case(name)
        };
        let mut lines: Vec<_> = self.lines.iter().filter(is_other).cloned().collect();
        lines.push(format!("{name}: {value}"));
        format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes()
    }
}
