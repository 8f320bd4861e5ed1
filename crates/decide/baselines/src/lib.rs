//! Published schedulers to compare ours with, and [`build`], which makes any by its name.
//!
//! Batches that grow in their queue, as rules of [`Candidates`]: [`Eager`], [`Timeout`] (Triton), [`Symphony`]
//! and [`SymphonyPaper`]. Requests that are committed to a device at once: Clockwork, Nexus and Clipper.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same actions and reasons.

mod clipper;
mod clockwork;
mod eager;
mod nexus;
mod replicas;
mod seats;
mod slots;
mod symphony;
mod timeout;

pub use eager::Eager;
pub use symphony::{Symphony, SymphonyPaper};
pub use timeout::Timeout;

use sextant_schedule::{Candidates, Options, Policy, Scheduler, Sextant};

/// Makes the scheduler that `options` names.
pub fn build<T: std::fmt::Debug + Send + 'static>(options: &Options) -> Box<dyn Scheduler<T>> {
    let delay = options.delay;
    match options.policy {
        Policy::Sextant => Box::new(Candidates::new(Sextant::new(options), delay)),
        Policy::Symphony => Box::new(Candidates::new(Symphony::new(options), delay)),
        Policy::SymphonyPaper => Box::new(Candidates::new(SymphonyPaper, delay)),
        Policy::Eager => Box::new(Candidates::new(Eager::strong(), delay)),
        Policy::EagerWeak => Box::new(Candidates::new(Eager::weak(), delay)),
        Policy::Timeout => Box::new(Candidates::new(Timeout::new(options), delay)),
        Policy::Clockwork => Box::new(clockwork::Clockwork::new(options)),
        Policy::Nexus => Box::new(nexus::Nexus::scheduler(options)),
        Policy::ClipperAimd | Policy::ClipperQuantile => {
            Box::new(clipper::Clipper::scheduler(options))
        }
    }
}
