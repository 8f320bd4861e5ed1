//! A wire that can be cut: what connects to it is passed on to a port of this machine, until it is not.
//!
//! A cable that is out for a moment costs a connection no byte: TCP sends again what nobody has got. So
//! bytes are either held back and come later, or they are gone, and their connection goes with them as
//! soon as the other end is heard again.

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

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 16 << 10;

/// A port of the loopback interface behind which another one answers.
#[derive(Debug)]
pub struct Wire {
    port: u16,
    state: watch::Sender<State>,
    /// Pieces that were lost so far.
    lost: Arc<AtomicUsize>,
    listening: AbortHandle,
}

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    Free,
    /// They wait until the flow is another one.
    Held,
    /// They are lost, and nobody is told; who lost some is cut off when the flow is free again.
    Lost,
    /// The same, but only those from the far end: it hears what it is asked, and nobody hears it.
    AnswersLost,
}

#[derive(Debug, Clone, Copy)]
struct State {
    flow: Flow,
    /// Connections that are older than the last one are cut off.
    resets: u64,
}

impl Wire {
    /// A wire to a port of the loopback interface; nobody need listen there yet.
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

    /// Where to connect to instead.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on bytes of every connection fare like this.
    pub fn set(&self, flow: Flow) {
        self.state.send_modify(|state| state.flow = flow);
    }

    /// How many pieces were lost until now, of all connections together.
    pub fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }

    /// Cuts off every connection that there is, as a machine does that has forgotten it.
    pub fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The connections end with the sender of the states.
        self.listening.abort();
    }
}

/// One thread carries all wires.
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
        // Without descriptors for a moment: who connects is let in later.
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
        // Dropped with what is unsent, which the other ends are told.
        for stream in [&client, &server] {
            stream.set_zero_linger().ok();
        }
    }
}

/// Passes on what comes until it ends; fails where something was lost, or an end is gone.
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

/// Waits for the next reset, or the end of the wire.
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

    /// A server that says everything twice, what it hears, and a wire to it.
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
