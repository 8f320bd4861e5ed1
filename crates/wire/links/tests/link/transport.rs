//! A link inside the process: messages take random times, in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sextant_links::link::{Broken, Clock, Link, Options, RemoteWorker, serve_worker};
use tokio::{
    sync::{Mutex, mpsc},
    task::AbortHandle,
    time::Instant,
};

use crate::double::Double;

/// Where the clock of the sending side starts.
pub const HERE_NS: u64 = 1 << 60;

/// One end.
struct End<Out, In> {
    out: mpsc::UnboundedSender<(Instant, Out)>,
    inbox: Mutex<mpsc::UnboundedReceiver<In>>,
}

/// A cable with two ends.
pub struct Cable {
    carriers: [AbortHandle; 2],
    least_ms: Arc<AtomicU64>,
}

/// A remote worker with everything behind it.
pub struct World {
    pub worker: Arc<RemoteWorker>,
    pub double: Arc<Double>,
    pub cable: Cable,
    pub connection: tokio::task::JoinHandle<Result<(), Broken>>,
}

/// An end that sends `Out` and receives `In`.
pub type Near<Out, In> = Arc<dyn Link<Out, In>>;

/// What a cable carries.
pub trait Message: Send + 'static {}

impl<T: Send + 'static> Message for T {}

/// Connects a double whose clock is `skew_ns` ahead.
pub async fn connect(skew_ns: i64, seed: u64) -> World {
    let (client, server, cable) = cable(seed);
    let double = Arc::<Double>::default();
    let there = clock(HERE_NS.saturating_add_signed(skew_ns));
    tokio::spawn(serve_worker(
        Arc::clone(&double) as _,
        server,
        there,
        std::future::pending(),
    ));
    let connected = RemoteWorker::connect(client, clock(HERE_NS), Options::default()).await;
    let (worker, connection) = connected.expect("the link holds");
    World {
        worker,
        double,
        cable,
        connection: tokio::spawn(connection.run(std::future::pending())),
    }
}

/// A clock of paused time.
pub fn clock(now_ns: u64) -> Clock {
    Clock::with_source(now_ns, || Instant::now().into_std())
}

/// Two ends whose messages take 1 to 12 ms.
pub fn cable<A: Message, B: Message>(seed: u64) -> (Near<A, B>, Near<B, A>, Cable) {
    let least_ms = Arc::new(AtomicU64::new(1));
    let (requests, requests_in, forth) = carry(seed, &least_ms);
    let (reports, reports_in, back) = carry(!seed, &least_ms);
    let near = End {
        out: requests,
        inbox: Mutex::new(reports_in),
    };
    let far = End {
        out: reports,
        inbox: Mutex::new(requests_in),
    };
    let carriers = [forth, back];
    (Arc::new(near), Arc::new(far), Cable { carriers, least_ms })
}

impl Cable {
    /// Cuts the cable: messages on their way are lost.
    pub fn cut(&self) {
        self.carriers.iter().for_each(AbortHandle::abort);
    }

    /// From now on every message takes at least an hour.
    pub fn stall(&self) {
        self.least_ms.store(3_600_000, Ordering::Relaxed);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.cut();
    }
}

fn carry<T: Message>(
    seed: u64,
    least_ms: &Arc<AtomicU64>,
) -> (
    mpsc::UnboundedSender<(Instant, T)>,
    mpsc::UnboundedReceiver<T>,
    AbortHandle,
) {
    let (sender, mut sent) = mpsc::unbounded_channel::<(Instant, T)>();
    let (deliver, delivered) = mpsc::unbounded_channel();
    let (least_ms, mut random) = (Arc::clone(least_ms), seed);
    let task = tokio::spawn(async move {
        while let Some((sent_at, message)) = sent.recv().await {
            let least = least_ms.load(Ordering::Relaxed);
            let delay = Duration::from_millis(least + next(&mut random) % 12);
            tokio::time::sleep_until(sent_at + delay).await;
            if deliver.send(message).is_err() {
                return;
            }
        }
    });
    (sender, delivered, task.abort_handle())
}

#[async_trait]
impl<Out: Send + 'static, In: Send + 'static> Link<Out, In> for End<Out, In> {
    fn send(&self, message: Out) -> Result<(), Broken> {
        let sent = self.out.send((Instant::now(), message));
        sent.map_err(|_| Broken)
    }

    async fn receive(&self) -> Result<In, Broken> {
        self.inbox.lock().await.recv().await.ok_or(Broken)
    }
}

/// The splitmix64 generator.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
