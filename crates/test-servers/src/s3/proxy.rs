//! The proxy between clients and the server: it passes requests on, or injects faults.

use std::{
    collections::HashMap,
    fmt,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::relay;

/// The fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with status 503 and the code `SlowDown`; the server never sees it.
    SlowDown,
    /// The connection ends before the server sees the request.
    Refuse,
    /// Both sides of the connection end after this many bytes of the request's body.
    CutRequest {
        /// Bytes of the body that reach the server.
        after_bytes: u64,
    },
    /// The connection ends after this many bytes of the answer's body: fewer than its
    /// `Content-Length` says.
    CutResponse {
        /// Bytes of the body that reach the client.
        after_bytes: u64,
    },
    /// The answer's body is shortened together with its `Content-Length`, so that HTTP shows no
    /// error.
    Truncate {
        /// Bytes of the body that reach the client.
        keep_bytes: u64,
    },
    /// The server carries out the request, but its answer is lost.
    LoseResponse,
    /// The answer stops after this many bytes of its body, and the connection stays open.
    Stall {
        /// Bytes of the body that reach the client.
        after_bytes: u64,
    },
    /// The request is passed on after this time.
    Delay(Duration),
}

/// One request, as the proxy sees it.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET`, `PUT`, ..
    pub method: String,
    /// The path, with the bucket, without the query.
    pub path: String,
    /// The text after the `?`; empty if there is none.
    pub query: String,
    /// The first byte of the requested range of the object, if there is one.
    pub first_byte: Option<u64>,
    /// Number of requests before it since the server was started.
    pub number: usize,
}

type Plan = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

/// Switches faults on and off.
pub struct Faults {
    plan: Mutex<Option<Plan>>,
    requests: AtomicUsize,
    injected: AtomicUsize,
    keys: Mutex<HashMap<String, Arc<RwLock<()>>>>,
}

impl Faults {
    /// From now on `plan` decides the fault of each request; `None` lets it pass.
    pub fn set(&self, plan: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        *lock(&self.plan) = Some(Box::new(plan));
    }

    /// From now on every request passes.
    pub fn clear(&self) {
        *lock(&self.plan) = None;
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Number of requests with a fault so far.
    pub fn injected(&self) -> usize {
        self.injected.load(Ordering::SeqCst)
    }

    pub(super) fn decide(&self, request: &mut Request) -> Option<Fault> {
        request.number = self.requests.fetch_add(1, Ordering::SeqCst);
        let fault = lock(&self.plan).as_mut().and_then(|plan| plan(request));
        if fault.is_some() {
            self.injected.fetch_add(1, Ordering::SeqCst);
        }
        fault
    }

    /// The lock of a key: readers share it, and a request that changes the key holds it alone.
    pub(super) fn key(&self, path: &str) -> Arc<RwLock<()>> {
        lock(&self.keys).entry(path.to_owned()).or_default().clone()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("on", &lock(&self.plan).is_some())
            .finish_non_exhaustive()
    }
}

/// The listening proxy. It stops listening when it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(super) fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let faults = Arc::new(Faults {
            plan: Mutex::new(None),
            requests: AtomicUsize::new(0),
            injected: AtomicUsize::new(0),
            keys: Mutex::new(HashMap::new()),
        });
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (faults, ended) = (faults.clone(), ended.clone());
            move || accept(&listener, server_port, &faults, &ended)
        });
        Self {
            port,
            faults,
            ended,
            thread: Some(thread),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // This wakes the thread, which waits for a connection.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn accept(listener: &TcpListener, server: u16, faults: &Arc<Faults>, ended: &AtomicBool) {
    for client in listener.incoming().flatten() {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        let faults = faults.clone();
        // A client or server that closes the connection is no error of the proxy.
        thread::spawn(move || relay::serve(&client, server, &faults).ok());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
