//! A link inside one process.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, mpsc};

use super::{Broken, Link};

struct End<Out, In> {
    out: mpsc::UnboundedSender<Out>,
    inbox: Mutex<mpsc::UnboundedReceiver<In>>,
}

/// Two ends of a link.
pub type Ends<A, B> = (Arc<dyn Link<A, B>>, Arc<dyn Link<B, A>>);

/// The two ends of a link between roles of one process. It breaks when either end is dropped.
/// Messages are passed on unchanged.
pub fn pair<A: Send + 'static, B: Send + 'static>() -> Ends<A, B> {
    let (forth, forth_in) = mpsc::unbounded_channel();
    let (back, back_in) = mpsc::unbounded_channel();
    let near = End {
        out: forth,
        inbox: Mutex::new(back_in),
    };
    let far = End {
        out: back,
        inbox: Mutex::new(forth_in),
    };
    (Arc::new(near), Arc::new(far))
}

#[async_trait]
impl<Out: Send + 'static, In: Send + 'static> Link<Out, In> for End<Out, In> {
    fn send(&self, message: Out) -> Result<(), Broken> {
        self.out.send(message).map_err(|_| Broken)
    }

    async fn receive(&self) -> Result<In, Broken> {
        self.inbox.lock().await.recv().await.ok_or(Broken)
    }
}
