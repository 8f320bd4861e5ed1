//! A server that answers whatever it is told to, over plain TCP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// These bytes, after which the connection stays open.
    Raw(Vec<u8>),
    /// These bytes, and the end of the connection.
    Cut(Vec<u8>),
    /// These bytes, and nothing more until the client goes away.
    Hang(Vec<u8>),
    /// These bytes once, then these again and again until the client goes away.
    Flood(Vec<u8>, Vec<u8>),
}

/// A request's first line and body give the reaction.
pub type Respond = dyn Fn(&str, &[u8]) -> Reaction + Send + Sync;

/// Stops listening when dropped; connections end with their clients.
pub struct HostileServer {
    pub address: String,
    listener: TcpListener,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl HostileServer {
    pub fn start(respond: Arc<Respond>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(Mutex::new(Vec::new()));
        let (accepted, streams) = (listener.try_clone().expect("a copy"), Arc::clone(&open));
        let accepting = thread::spawn(move || {
            for stream in accepted.incoming().map_while(Result::ok) {
                let respond = Arc::clone(&respond);
                let copy = stream.try_clone().expect("a copy");
                streams.lock().push(copy);
                thread::spawn(move || serve(stream, &*respond));
            }
        });
        Self {
            address: format!("http://{address}"),
            listener,
            open,
            accepting: Some(accepting),
        }
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).ok();
        if let Some(accepting) = self.accepting.take() {
            accepting.join().ok();
        }
        let mut open = self.open.lock();
        for stream in open.drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// An answer with this status and body.
pub fn answer(status: u16, body: &str) -> Reaction {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\r\n");
    Reaction::Raw([head.as_bytes(), body.as_bytes()].concat())
}

fn serve(stream: TcpStream, respond: &Respond) {
    let mut writer = stream.try_clone().expect("a copy");
    let mut reader = BufReader::new(stream);
    while let Some((line, body)) = request(&mut reader) {
        match respond(&line, &body) {
            Reaction::Raw(bytes) => {
                if writer.write_all(&bytes).is_err() {
                    return;
                }
            }
            Reaction::Cut(bytes) => {
                writer.write_all(&bytes).ok();
                writer.shutdown(Shutdown::Both).ok();
                return;
            }
            Reaction::Hang(bytes) => {
                writer.write_all(&bytes).ok();
                reader.read_to_end(&mut Vec::new()).ok();
                return;
            }
            Reaction::Flood(first, again) => {
                let mut sent = writer.write_all(&first);
                while sent.is_ok() {
                    sent = writer.write_all(&again);
                }
                return;
            }
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.trim().to_owned(), body))
}
