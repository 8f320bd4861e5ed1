//! A cable between two processes that can be cut or held.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinSet,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Still,
    Cut,
}

/// Forwards connections to an endpoint.
pub struct Cable {
    pub endpoint: Arc<str>,
    state: watch::Sender<State>,
    _listening: JoinSet<()>,
}

impl Cable {
    pub async fn to(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (state, endpoint) = (watch::Sender::new(State::Whole), endpoint.to_owned());
        let mut listening = JoinSet::new();
        let states = state.subscribe();
        listening.spawn(async move {
            let mut forwarding = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&endpoint).await else {
                    continue;
                };
                let ((near_in, near_out), (far_in, far_out)) =
                    (near.into_split(), far.into_split());
                forwarding.spawn(forward(near_in, far_out, states.clone()));
                forwarding.spawn(forward(far_in, near_out, states.clone()));
            }
        });
        Self {
            endpoint: address.to_string().into(),
            state,
            _listening: listening,
        }
    }

    /// Closes the connections of both ends; later connections are closed at once.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Stops passing bytes, without telling either end.
    pub fn hold(&self) {
        self.state.send_replace(State::Still);
    }

    pub fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match state.wait_for(|it| *it != State::Still).await.as_deref() {
            Ok(State::Whole) => {}
            _ => return,
        }
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    if to.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            _ = state.changed() => {}
        }
    }
}
