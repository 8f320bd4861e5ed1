//! The process of an artefact: it is started when needed, killed when a run must end, and started again.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sextant_engine::{Error, Interrupt};
use sextant_types::Code;

use crate::{
    link::{Answer, Link},
    message::Request,
    program::{Child, Death, Program},
};

/// Pause before a process that has ended twice in a row is started again; it doubles each further time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Longest pause that a run waits for; it fails before longer ones.
const SHORT_PAUSE: Duration = Duration::from_millis(400);

/// See the module. There is one for each artefact: if a file or an input harms its process, only users of that file are
/// affected, and variants of one artefact share its weights.
pub(crate) struct Host {
    program: Program,
    state: Mutex<State>,
    /// Weights that the process holds.
    pub(crate) resident_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    process: Option<Arc<Process>>,
    /// Number of processes that have ended since one has answered.
    ended: u32,
    /// When the last one ended.
    since: Option<Instant>,
}

/// A child with its connections.
pub(crate) struct Process {
    child: Mutex<Option<Child>>,
    control: UnixStream,
    idle: Mutex<Vec<Link>>,
    /// Its memory limit, and so most bytes of its answers.
    memory_bytes: u64,
    /// Requests in progress.
    running: AtomicUsize,
    /// Whether it was killed because a request took too long.
    was_ended: AtomicBool,
    end: OnceLock<End>,
}

/// How a process ended.
struct End {
    death: Option<Death>,
    /// Requests that were in progress then.
    running: usize,
}

// === impl Host ===

impl Host {
    pub(crate) fn new(program: Program) -> Self {
        Self {
            program,
            state: Mutex::default(),
            resident_bytes: AtomicU64::new(0),
        }
    }

    /// The process, which is started if there is none.
    pub(crate) fn process(&self) -> Result<Arc<Process>, Error> {
        let mut state = lock(&self.state);
        if let Some(process) = &state.process {
            return Ok(Arc::clone(process));
        }
        let pause = state.pause();
        if pause > SHORT_PAUSE {
            let ms = pause.as_millis();
            let reason =
                format!("its process has ended again and again and is started in `{ms}` ms");
            return Err(Error::Restarted(reason));
        }
        rest(pause);
        let process = Process::start(&self.program).map_err(|error| {
            let program = self.program.program.display();
            Error::Lost(format!("`{program}` cannot be started: {error}"))
        })?;
        let process = Arc::new(process);
        state.process = Some(Arc::clone(&process));
        Ok(process)
    }

    /// The process, if it runs and nobody is starting one.
    pub(crate) fn running(&self) -> Option<Arc<Process>> {
        self.state.try_lock()?.process.clone()
    }

    /// The process's id in the system, if there is one.
    pub(crate) fn number(&self) -> Option<u32> {
        let process = lock(&self.state).process.clone()?;
        let child = lock(&process.child);
        child.as_ref().map(Child::number)
    }

    /// The process has answered.
    pub(crate) fn answered(&self) {
        let mut state = lock(&self.state);
        state.ended = 0;
    }

    /// Forgets the process: the next request starts another one.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        let end = process.end();
        let mut state = lock(&self.state);
        if state
            .process
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, process))
        {
            state.process = None;
            state.ended += 1;
            state.since = Some(Instant::now());
            self.resident_bytes.store(0, Ordering::Relaxed);
            tracing::warn!(end = %end.text(), "the process of an engine has ended");
        }
    }

    /// The error of a request whose process has ended.
    pub(crate) fn explain(&self, process: &Arc<Process>, interrupt: &Interrupt) -> Error {
        self.forget(process);
        let end = process.end();
        if interrupt.is_raised() {
            return Error::Interrupted;
        }
        let was_ended = process.was_ended();
        match &end.death {
            Some(death) if !was_ended && !death.was_killed() && end.running == 1 => {
                match death.explain() {
                    (Code::MemoryExceeded, text) => Error::MemoryExceeded(text),
                    (_, text) => Error::Crashed(text),
                }
            }
            // There is no evidence that this request is at fault.
            _ => Error::Restarted(end.text()),
        }
    }
}

/// Waits for a pause to pass. Other requests for the process wait as well.
#[expect(
    clippy::disallowed_methods,
    reason = "it is time that is waited for, not a state"
)]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

impl State {
    /// The pause before the next process.
    fn pause(&self) -> Duration {
        let doublings = match self.ended {
            0 | 1 => return Duration::ZERO,
            more => (more - 2).min(16),
        };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << doublings);
        let since = self.since.map_or(Duration::MAX, |since| since.elapsed());
        pause.min(LONGEST_PAUSE).saturating_sub(since)
    }
}

// === impl Process ===

impl Process {
    fn start(program: &Program) -> io::Result<Self> {
        let (control, other) = UnixStream::pair()?;
        let child = program.start(Stdio::from(OwnedFd::from(other)), Stdio::null())?;
        Ok(Self {
            child: Mutex::new(Some(child)),
            control,
            idle: Mutex::default(),
            memory_bytes: program.memory_bytes,
            running: AtomicUsize::new(0),
            was_ended: AtomicBool::new(false),
            end: OnceLock::new(),
        })
    }

    /// Asks the child and waits for the answer for as long as that takes; if `interrupt` is raised, the child is
    /// killed.
    pub(crate) fn call(
        self: &Arc<Self>,
        request: &Request,
        blobs: &[Bytes],
        interrupt: &Interrupt,
    ) -> io::Result<Answer> {
        self.running.fetch_add(1, Ordering::AcqRel);
        let kill = {
            let process = Arc::clone(self);
            move || process.kill()
        };
        let answer = interrupt.over(kill, || {
            let idle = lock(&self.idle).pop();
            let mut link = idle.map_or_else(|| Link::open(&self.control), Ok)?;
            let answer = link.call(request, blobs, self.memory_bytes)?;
            lock(&self.idle).push(link);
            Ok(answer)
        });
        if answer.is_err() {
            // It ends while all requests in progress are counted.
            self.end();
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    /// Whether it was killed because a request took too long.
    pub(crate) fn was_ended(&self) -> bool {
        self.was_ended.load(Ordering::Acquire)
    }

    pub(crate) fn kill(&self) {
        self.was_ended.store(true, Ordering::Release);
        if let Some(child) = lock(&self.child).as_mut() {
            child.kill();
        }
    }

    /// Kills it unless it has ended, and returns how it ended.
    fn end(&self) -> &End {
        self.end.get_or_init(|| {
            let child = lock(&self.child).take();
            End {
                running: self.running.load(Ordering::Acquire),
                death: child.map(Child::end),
            }
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl End ===

impl End {
    fn text(&self) -> String {
        match &self.death {
            Some(death) if death.was_killed() => "the engine's process was killed".to_owned(),
            Some(death) => death.explain().1,
            None => "the engine's process has ended".to_owned(),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock()
}
