//! The thread that starts children.
//!
//! A child that is to die with its parent dies with the *thread* that has started it. So one thread starts all
//! children, and lives as long as the process.

use std::{
    io,
    sync::{OnceLock, mpsc},
    thread,
};

use parking_lot::Mutex;

type Work = Box<dyn FnOnce() + Send>;

/// Runs `work` on that thread, and waits for it.
pub(crate) fn run<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = mpsc::channel();
    let work = move || {
        // The receiver waits for it.
        sender.send(work()).ok();
    };
    let gone = || io::Error::other("the thread that starts processes is gone");
    spawner()?.send(Box::new(work)).map_err(|_| gone())?;
    done.recv().map_err(|_| gone())?
}

fn spawner() -> io::Result<mpsc::Sender<Work>> {
    static SPAWNER: OnceLock<Mutex<Option<mpsc::Sender<Work>>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(Mutex::default);
    let mut spawner = spawner.lock();
    if let Some(sender) = &*spawner {
        return Ok(sender.clone());
    }
    let (sender, works) = mpsc::channel::<Work>();
    thread::Builder::new()
        .name("sextant-spawn".to_owned())
        .spawn(move || works.into_iter().for_each(|work| work()))?;
    *spawner = Some(sender.clone());
    Ok(sender)
}
