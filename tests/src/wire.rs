//! A wire that can be disturbed: connections to it are passed on to a port of this machine.
//!
//! A cable that is cut for a moment loses no byte of a connection, because TCP sends lost bytes again. So a wire either
//! delays bytes, or loses them, and then also closes their connection as soon as the other end is heard again.

use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime::{Builder, Handle},
    sync::watch,
    task::AbortHandle,
};

/// Size of the pieces that are passed on, bytes.
const PIECE_BYTES: usize = 16 << 10;

/// A port of the loopback interface that passes connections on to another one.
#[derive(Debug)]
pub struct Wire {
    port: u16,
    state: watch::Sender<State>,
    /// Number of pieces that were lost so far.
    lost: Arc<AtomicUsize>,
    listening: AbortHandle,
}

/// The treatment of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    Free,
    /// They wait until the flow changes.
    Held,
    /// They are lost, and neither end is told. Connections that lost bytes are closed when the flow is free again.
    Lost,
    /// The same, but only for bytes from the far end: it receives requests, and its answers are lost.
    AnswersLost,
}

#[derive(Debug, Clone, Copy)]
struct State {
    flow: Flow,
    /// Number of resets. Connections older than the last one are closed.
    resets: u64,
}

impl Wire {
    /// A wire to a port of the loopback interface. Nothing needs to listen there yet.
    pub fn to(port: u16) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.expect("a port is free");
        let own = listener.local_addr().expect("it has an address").port();
        listener.set_nonblocking(true).expect("a socket can wait");
        let (state, states) = watch::channel(State {
            flow: Flow::Free,
            resets: 0,
        });
        let lost = Arc::default();
        let listening = runtime().spawn(listen(listener, port, states, Arc::clone(&lost)));
        Self {
            port: own,
            state,
            lost,
            listening: listening.abort_handle(),
        }
    }

    /// The port to which clients must connect instead.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the treatment of the bytes of every connection from now on.
    pub fn set(&self, flow: Flow) {
        self.state.send_modify(|state| state.flow = flow);
    }

    /// Number of pieces that were lost so far, of all connections together.
    pub fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }

    /// Closes every present connection, like a machine that has forgotten it.
    pub fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The connections end when the sender of the states is dropped.
        self.listening.abort();
    }
}

/// The runtime of all wires, which has one thread.
fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_io().build();
        let runtime = runtime.expect("a runtime can be made");
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}

async fn listen(
    listener: std::net::TcpListener,
    port: u16,
    states: watch::Receiver<State>,
    lost: Arc<AtomicUsize>,
) {
    let listener = TcpListener::from_std(listener).expect("it belongs to this runtime");
    loop {
        // There are no descriptors at the moment: the client is accepted later.
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let resets = states.borrow().resets;
        let lost = Arc::clone(&lost);
        tokio::spawn(carry(client, port, states.clone(), resets, lost));
    }
}

/// Carries one connection to its end.
async fn carry(
    mut client: TcpStream,
    port: u16,
    states: watch::Receiver<State>,
    resets: u64,
    lost: Arc<AtomicUsize>,
) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        client.set_zero_linger().ok();
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).ok();
    }
    let is_cut = {
        let (asks, receives) = client.split();
        let (replies, hears) = server.split();
        let there = pass(asks, hears, states.clone(), &lost, |flow| {
            flow == Flow::Lost
        });
        let is_lost = |flow| matches!(flow, Flow::Lost | Flow::AnswersLost);
        let back = pass(replies, receives, states.clone(), &lost, is_lost);
        tokio::select! {
            ended = async { tokio::try_join!(there, back) } => ended.is_err(),
            () = reset_after(states.clone(), resets) => true,
        }
    };
    if is_cut {
        // With zero linger a dropped socket discards unsent bytes and resets the connection, which the other ends see.
        for stream in [&client, &server] {
            stream.set_zero_linger().ok();
        }
    }
}

/// Passes on bytes until the end. Fails if bytes were lost, or if an end is gone.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut states: watch::Receiver<State>,
    lost: &AtomicUsize,
    is_lost: impl Fn(Flow) -> bool,
) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
    let mut bytes = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut bytes).await?;
        let state = states.wait_for(|state| state.flow != Flow::Held).await;
        let flow = state.map_err(|_| gone())?.flow;
        if is_lost(flow) {
            lost.fetch_add(1, Ordering::SeqCst);
            states.wait_for(|state| !is_lost(state.flow)).await.ok();
            return Err(gone());
        }
        match bytes.get(..count) {
            Some([]) | None => return to.shutdown().await,
            Some(bytes) => to.write_all(bytes).await?,
        }
    }
}

/// Waits for the next reset, or for the end of the wire.
async fn reset_after(mut states: watch::Receiver<State>, resets: u64) {
    states.wait_for(|state| state.resets > resets).await.ok();
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        sync::mpsc::{self, Receiver},
        time::{Duration, Instant},
    };

    use super::*;

    /// A server that sends back every byte twice and reports what it receives, and a wire to it.
    fn echo() -> (Wire, Receiver<u8>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wire = Wire::to(listener.local_addr().unwrap().port());
        let (sender, heard) = mpsc::channel();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || {
                    let mut byte = [0];
                    while client.read_exact(&mut byte).is_ok() {
                        sender.send(byte[0]).ok();
                        client.write_all(&[byte[0], byte[0]]).ok();
                    }
                });
            }
        });
        (wire, heard)
    }

    fn connect(wire: &Wire) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, wire.port())).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    fn say(mut stream: &TcpStream, byte: u8) {
        stream.write_all(&[byte]).unwrap();
    }

    fn hear(mut stream: &TcpStream) -> io::Result<[u8; 2]> {
        let mut bytes = [0; 2];
        stream.read_exact(&mut bytes).map(|()| bytes)
    }

    #[test]
    fn what_is_held_comes_later() {
        let (wire, heard) = echo();
        let stream = connect(&wire);
        say(&stream, 1);
        assert_eq!(hear(&stream).unwrap(), [1, 1]);
        wire.set(Flow::Held);
        say(&stream, 2);
        let early = heard.try_iter().collect::<Vec<_>>();
        assert_eq!(early, [1]);
        wire.set(Flow::Free);
        assert_eq!(hear(&stream).unwrap(), [2, 2]);
    }

    #[test]
    fn who_lost_something_is_cut_off_and_others_are_not() {
        let (wire, heard) = echo();
        let (one, other) = (connect(&wire), connect(&wire));
        for stream in [&one, &other] {
            say(stream, 1);
            hear(stream).unwrap();
        }
        wire.set(Flow::AnswersLost);
        say(&one, 2);
        assert_eq!(heard.iter().nth(2), Some(2), "the far end hears it");
        wait_for_loss(&wire, 1);
        wire.set(Flow::Free);
        assert!(hear(&one).is_err(), "its answer is gone");
        wire.set(Flow::Lost);
        let late = connect(&wire);
        say(&late, 3);
        wait_for_loss(&wire, 2);
        wire.set(Flow::Free);
        assert!(hear(&late).is_err(), "what it said is gone");
        say(&other, 4);
        assert_eq!(hear(&other).unwrap(), [4, 4]);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [4]);
    }

    fn wait_for_loss(wire: &Wire, pieces: usize) {
        let start = Instant::now();
        while wire.lost() < pieces {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "nothing was lost"
            );
            thread::yield_now();
        }
    }

    #[test]
    fn a_reset_cuts_off_whoever_is_connected() {
        let (wire, _heard) = echo();
        let stream = connect(&wire);
        say(&stream, 1);
        hear(&stream).unwrap();
        wire.reset();
        let told = hear(&stream).unwrap_err().kind();
        assert_eq!(told, io::ErrorKind::ConnectionReset);
        let next = connect(&wire);
        say(&next, 2);
        assert_eq!(hear(&next).unwrap(), [2, 2]);
    }

    #[test]
    fn where_nobody_listens_a_connection_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let stream = connect(&Wire::to(port));
        assert!(hear(&stream).is_err());
    }
}
