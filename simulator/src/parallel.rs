//! Work on several threads, whose results go to the calling thread.

use std::sync::{
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc,
};

/// The number of threads that was asked for; one per core for 0.
pub fn threads(desired: usize) -> usize {
    match desired {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        desired => desired,
    }
}

/// Does `work` for each of `todo` on this many threads. `ended` is called on the calling thread as each ends, with its
/// position in `todo`, and says whether to continue.
pub fn each<T: Sync, R: Send>(
    todo: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    mut ended: impl FnMut(usize, R) -> bool,
) {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads.min(todo.len()) {
            let (sender, next, stop, work) = (sender.clone(), &next, &stop, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(of) = todo.get(at) else { return };
                    let go_on = !stop.load(Ordering::Relaxed);
                    if !go_on || sender.send((at, work(of))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (at, result) in results {
            if !ended(at, result) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
}
