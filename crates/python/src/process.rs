//! One child, and the requests to it.

use std::{
    io::{self, BufReader, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_isolation::{Child, Program, frame};
use sextant_pipeline::{Function, Memory, Part};
use sextant_rpc::QueryError;
use sextant_types::{Code, NamedTensor};

use crate::message::{ExpectedTensor, Head, Kind, Reply, Request, pack};

/// Most bytes of a call's outputs.
const MOST_BYTES: u64 = 256 << 20;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A child that runs the functions of one file.
pub(crate) struct Process {
    child: Child,
    from: BufReader<TimedStream>,
    to: TimedStream,
}

/// The outputs of a call: tensors, and their reservation.
pub(crate) type CallOutput = (Vec<NamedTensor>, Part);

/// Why a call has no outputs.
pub(crate) enum CallFailure {
    /// The child is usable as before.
    Call(QueryError),
    /// The child is no longer usable: it is ended.
    Child(ChildFailure),
}

/// Why a child is no longer usable.
pub(crate) enum ChildFailure {
    /// It took too long.
    Slow,
    /// It is gone.
    Gone,
    /// It reported this error last.
    Said(QueryError),
}

/// A stream that fails at a deadline.
struct TimedStream {
    stream: UnixStream,
    until: Instant,
}

// === impl Process ===

impl Process {
    /// Starts a child.
    ///
    /// # Errors
    /// If the system cannot start it.
    pub(crate) fn start(program: &Program, limit: Duration) -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        let child = program.start(Stdio::from(OwnedFd::from(other)), Stdio::null())?;
        let until = Instant::now() + limit;
        Ok(Self {
            child,
            to: TimedStream {
                stream: own.try_clone()?,
                until,
            },
            from: BufReader::with_capacity(READ_BYTES, TimedStream { stream: own, until }),
        })
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.has_ended()
    }

    /// Kills it.
    pub(crate) fn end(self) -> sextant_isolation::Death {
        self.child.end()
    }

    /// Runs the file of a function in it.
    pub(crate) fn load(&mut self, function: &Function, limit: Duration) -> Result<(), CallFailure> {
        let beside = function.files.iter();
        let request = Request::Load {
            path: &function.path,
            bytes: function.file.len(),
            files: beside
                .clone()
                .map(|(path, file)| (path.as_str(), file.len()))
                .collect(),
        };
        let files = std::iter::once(&function.file).chain(beside.map(|(_, file)| file));
        self.ask(&request, &files.cloned().collect::<Vec<_>>(), limit)?;
        match self.ready() {
            // The file may have started something that goes on, so the child is ended.
            Err(CallFailure::Call(error)) => Err(CallFailure::Child(ChildFailure::Said(error))),
            other => other,
        }
    }

    /// Checks that a function exists.
    pub(crate) fn find(&mut self, function: &Function, limit: Duration) -> Result<(), CallFailure> {
        let name = &function.name;
        self.ask(&Request::Find { function: name }, &[], limit)?;
        self.ready()
    }

    /// Calls a function with inputs that fit it.
    pub(crate) fn call(
        &mut self,
        function: &Function,
        inputs: &[NamedTensor],
        memory: &Arc<dyn Memory>,
        limit: Duration,
    ) -> Result<CallOutput, CallFailure> {
        let packed = inputs.iter().map(|input| pack(&input.name, &input.tensor));
        let (sent, elements): (Vec<_>, Vec<_>) = packed.unzip();
        let request = Request::Call {
            function: &function.name,
            inputs: sent,
            gives: function
                .signature
                .outputs
                .iter()
                .map(ExpectedTensor::from)
                .collect(),
        };
        self.ask(&request, &elements.concat(), limit)?;
        match self.reply()? {
            Reply::Gave { outputs } => self.outputs(function, outputs, memory),
            Reply::Failed { kind, text } => Err(failed(kind, &text)),
            Reply::Ready {} => Err(CallFailure::Child(ChildFailure::Said(nonsense()))),
        }
    }

    fn outputs(
        &mut self,
        function: &Function,
        heads: Vec<Head>,
        memory: &Arc<dyn Memory>,
    ) -> Result<CallOutput, CallFailure> {
        let specs = &function.signature.outputs;
        if heads.len() != specs.len() {
            return Err(CallFailure::Child(ChildFailure::Said(nonsense())));
        }
        let bytes = heads
            .iter()
            .fold(0, |sum: u64, head| sum.saturating_add(head.bytes()));
        if bytes > MOST_BYTES {
            let message = format!("it gave `{bytes}` bytes, and at most `{MOST_BYTES}` are taken");
            return Err(CallFailure::Child(ChildFailure::Said(QueryError::new(
                Code::TooLarge,
                message,
            ))));
        }
        let wrong = heads
            .iter()
            .zip(specs)
            .find_map(|(head, spec)| head.check(spec).err());
        let refused = match wrong {
            Some(why) => Err(step_failed(format!("it {why}"))),
            None => memory.take(bytes),
        };
        match refused {
            Ok(part) => {
                let tensors = heads.into_iter().zip(specs);
                let tensors = tensors.map(|(head, spec)| head.unpack(spec, &mut self.from));
                let tensors = tensors
                    .collect::<io::Result<Vec<_>>>()
                    .map_err(|error| ill(&error))?;
                Ok((tensors, part))
            }
            Err(error) => {
                // The next answer begins after it.
                io::copy(&mut self.from.by_ref().take(bytes), &mut io::sink())
                    .map_err(|error| ill(&error))?;
                Err(CallFailure::Call(error))
            }
        }
    }

    fn ask(
        &mut self,
        request: &Request<'_>,
        blobs: &[Bytes],
        limit: Duration,
    ) -> Result<(), CallFailure> {
        let until = Instant::now() + limit;
        self.to.until = until;
        self.from.get_mut().until = until;
        frame::write(&mut self.to, request, blobs).map_err(|error| ill(&error))
    }

    fn reply(&mut self) -> Result<Reply, CallFailure> {
        let reply = frame::read_head(&mut self.from).map_err(|error| ill(&error))?;
        reply.ok_or(CallFailure::Child(ChildFailure::Gone))
    }

    fn ready(&mut self) -> Result<(), CallFailure> {
        match self.reply()? {
            Reply::Ready {} => Ok(()),
            Reply::Failed { kind, text } => Err(failed(kind, &text)),
            Reply::Gave { .. } => Err(CallFailure::Child(ChildFailure::Said(nonsense()))),
        }
    }
}

/// An error that the function or its file caused.
pub(crate) fn step_failed(message: String) -> QueryError {
    QueryError::new(Code::StepFailed, message)
}

fn nonsense() -> QueryError {
    step_failed("its process answered something else than what it was asked".to_owned())
}

fn failed(kind: Kind, text: &str) -> CallFailure {
    match kind {
        Kind::Raised => CallFailure::Call(step_failed(format!("it raised an exception: {text}"))),
        Kind::Wrong => CallFailure::Call(step_failed(format!("it {text}"))),
        Kind::Memory => {
            let message = "it needs more memory than `pipelines.python.memory_bytes`".to_owned();
            CallFailure::Child(ChildFailure::Said(QueryError::new(
                Code::MemoryExceeded,
                message,
            )))
        }
    }
}

fn ill(error: &io::Error) -> CallFailure {
    CallFailure::Child(match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ChildFailure::Slow,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected => ChildFailure::Gone,
        _ => ChildFailure::Said(nonsense()),
    })
}

// === impl TimedStream ===

impl TimedStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for TimedStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
