//! Streams, events and graphs of the simulated device.

use super::{
    Address, BTreeMap, Error, Event, Graph, HashSet, Memory, Operation, Range, Staging,
    StagingAddress, Stream, VecDeque, Windows, overlap, wrong,
};
use crate::reference;

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most commands of a graph are the large one"
)]
pub(super) enum Command {
    CopyIn {
        from: StagingAddress,
        to: Address,
        bytes: u64,
    },
    CopyOut {
        from: Address,
        to: StagingAddress,
        bytes: u64,
    },
    CopyWithin {
        from: Address,
        to: Address,
        bytes: u64,
    },
    Compute(Operation),
    Replay(Graph),
    Record(Event, u64),
    Wait(Event, u64),
}

/// An event. Its recordings are numbered.
#[derive(Debug, Clone, Default)]
struct Recordings {
    recorded: u64,
    reached: u64,
    stream: Option<Stream>,
    at: u64,
}

#[derive(Default)]
pub(super) struct State {
    pub started: bool,
    pub lost: bool,
    pub refuses_mapping: bool,
    pub arena: Memory,
    pub windows: Option<Windows>,
    pub staging: Memory<Staging>,
    pub streams: Vec<VecDeque<Command>>,
    events: Vec<Recordings>,
    pub graphs: BTreeMap<Graph, Vec<Command>>,
    graphs_made: u32,
    pub capture: Option<(Stream, Vec<Command>)>,
    pub prepared: HashSet<u64>,
    /// Number of commands done; it is the device's clock in microseconds.
    done: u64,
}

// === impl State ===

impl State {
    pub fn push(&mut self, stream: Stream, command: Command) -> Result<(), Error> {
        if self
            .capture
            .as_ref()
            .is_some_and(|(captured, _)| *captured == stream)
        {
            return Err(wrong("only launches and copies inside can be captured"));
        }
        self.stream(stream)?.push_back(command);
        Ok(())
    }

    pub fn push_or_capture(&mut self, stream: Stream, command: Command) -> Result<(), Error> {
        match &mut self.capture {
            Some((captured, commands)) if *captured == stream => commands.push(command),
            _ => self.stream(stream)?.push_back(command),
        }
        Ok(())
    }

    pub fn create_event(&mut self) -> Event {
        self.events.push(Recordings::default());
        Event(self.events.len() as u32 - 1)
    }

    pub fn record(&mut self, event: Event, stream: Stream) -> Result<(), Error> {
        let recordings = self.event(event)?;
        recordings.recorded += 1;
        recordings.stream = Some(stream);
        let number = recordings.recorded;
        self.push(stream, Command::Record(event, number))
    }

    pub fn wait(&mut self, stream: Stream, event: Event) -> Result<(), Error> {
        let number = self.event(event)?.recorded;
        self.push(stream, Command::Wait(event, number))
    }

    /// Works until the event's last recording is reached.
    pub fn reach(&mut self, event: Event) -> Result<(), Error> {
        let recorded = self.event(event)?.recorded;
        self.reach_number(event, recorded)
    }

    pub fn reached_at(&self, event: Event) -> Result<u64, Error> {
        match self.events.get(event.0 as usize) {
            Some(it) if it.recorded > 0 && it.reached == it.recorded => Ok(it.at),
            _ => Err(wrong("the time of an event that is not reached")),
        }
    }

    /// Does all the work of a stream.
    pub fn drain(&mut self, stream: Stream) -> Result<(), Error> {
        while let Some(command) = self.stream(stream)?.pop_front() {
            self.execute(&command)?;
        }
        Ok(())
    }

    /// Fails when a copy of staging memory in the range is still pending.
    pub fn no_pending(&self, range: &Range<StagingAddress>) -> Result<(), Error> {
        let touches = |command: &Command| match command {
            Command::CopyIn {
                from: at, bytes, ..
            }
            | Command::CopyOut { to: at, bytes, .. } => overlap(&(*at..*at + *bytes), range),
            _ => false,
        };
        if self.streams.iter().flatten().any(touches) {
            return Err(wrong(&format!("staging {range:?} while a copy is pending")));
        }
        Ok(())
    }

    /// Maps pages and returns how many were not there before. Fails when pending work still reads there.
    pub fn map(&mut self, window: Address, pages: &[u32]) -> Result<usize, Error> {
        let pending: Vec<Range<Address>> = self
            .streams
            .iter()
            .flatten()
            .flat_map(|command| self.reads(command))
            .collect();
        let windows = self.windows.as_mut();
        let windows =
            windows.ok_or_else(|| wrong("pages are mapped where there are no windows"))?;
        windows.map(window, pages, &pending)
    }

    /// The ranges of the arena and the windows that a command reads.
    fn reads(&self, command: &Command) -> Vec<Range<Address>> {
        match command {
            Command::CopyOut { from, bytes, .. } | Command::CopyWithin { from, bytes, .. } => {
                vec![*from..*from + *bytes]
            }
            Command::Compute(operation) => operation.reads(),
            Command::Replay(graph) => {
                let commands = self.graphs.get(graph).into_iter().flatten();
                commands.flat_map(|command| self.reads(command)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The address in the arena of a range that is read.
    fn placed(&self, range: Range<Address>) -> Result<Address, Error> {
        match &self.windows {
            Some(windows) => windows.place(range),
            None => Ok(range.start),
        }
    }

    pub fn begin_capture(&mut self, stream: Stream) -> Result<(), Error> {
        if self.capture.is_some() {
            return Err(wrong("a second capture at a time"));
        }
        if !self.stream(stream)?.is_empty() {
            return Err(wrong("a capture behind pending work"));
        }
        self.capture = Some((stream, Vec::new()));
        Ok(())
    }

    pub fn end_capture(&mut self, stream: Stream) -> Result<(Graph, usize), Error> {
        match self.capture.take() {
            Some((_, commands)) if commands.is_empty() => Err(wrong("an empty capture")),
            Some((captured, commands)) if captured == stream => {
                let graph = Graph(self.graphs_made);
                self.graphs_made += 1;
                let operations = commands.len();
                self.graphs.insert(graph, commands);
                Ok((graph, operations))
            }
            _ => Err(wrong("the end of a capture that was not begun")),
        }
    }

    fn reach_number(&mut self, event: Event, number: u64) -> Result<(), Error> {
        loop {
            let recordings = self.event(event)?;
            if recordings.reached >= number {
                return Ok(());
            }
            let stream = recordings
                .stream
                .ok_or_else(|| wrong("an event of no stream"))?;
            let Some(command) = self.stream(stream)?.pop_front() else {
                return Err(wrong("an event that is never reached"));
            };
            self.execute(&command)?;
        }
    }

    fn execute(&mut self, command: &Command) -> Result<(), Error> {
        self.done += 1;
        match command {
            Command::CopyIn { from, to, bytes } => {
                let bytes = self.staging.read(*from..*from + *bytes)?;
                self.arena.write(*to, bytes)
            }
            Command::CopyOut { from, to, bytes } => {
                let from = self.placed(*from..*from + *bytes)?;
                let bytes = self.arena.read(from..from + *bytes)?;
                self.staging.write(*to, bytes)
            }
            Command::CopyWithin { from, to, bytes } => {
                let from = self.placed(*from..*from + *bytes)?;
                let bytes = self.arena.read(from..from + *bytes)?.to_vec();
                self.arena.write(*to, &bytes)
            }
            Command::Compute(operation) => {
                let operation = match &self.windows {
                    Some(windows) => windows.place_operation(operation)?,
                    None => *operation,
                };
                reference::compute(&operation, &mut self.arena)
            }
            Command::Replay(graph) => self.replay(*graph),
            Command::Wait(event, number) => self.reach_number(*event, *number),
            Command::Record(event, number) => {
                let done = self.done;
                let recordings = self.event(*event)?;
                recordings.reached = *number;
                recordings.at = done;
                Ok(())
            }
        }
    }

    /// Runs a graph. What the graph writes before it reads it counts as never written at its begin: the graph must not
    /// use what an earlier run has left.
    fn replay(&mut self, graph: Graph) -> Result<(), Error> {
        let commands = self.graphs.get(&graph).cloned();
        let commands = commands.ok_or_else(|| wrong("a graph that was destroyed"))?;
        for range in &own_ranges(&commands) {
            self.arena.forget(range);
        }
        commands
            .iter()
            .try_for_each(|command| self.execute(command))
    }

    fn stream(&mut self, stream: Stream) -> Result<&mut VecDeque<Command>, Error> {
        let stream = self.streams.get_mut(stream.0 as usize);
        stream.ok_or_else(|| wrong("a stream that does not exist"))
    }

    fn event(&mut self, event: Event) -> Result<&mut Recordings, Error> {
        let event = self.events.get_mut(event.0 as usize);
        event.ok_or_else(|| wrong("an event that does not exist"))
    }
}

/// The ranges that commands write without having read them before.
fn own_ranges(commands: &[Command]) -> Vec<Range<Address>> {
    let (mut written, mut given) = (Vec::new(), Vec::new());
    for command in commands {
        let Command::Compute(operation) = command else {
            continue;
        };
        for read in operation.reads() {
            given.extend(without(vec![read], &written));
        }
        written.extend(without(vec![operation.writes()], &given));
    }
    written
}

/// The ranges without the bytes of `others`.
fn without(mut ranges: Vec<Range<Address>>, others: &[Range<Address>]) -> Vec<Range<Address>> {
    for other in others {
        ranges = ranges
            .into_iter()
            .flat_map(|range| {
                let before = range.start..range.end.min(other.start);
                let behind = range.start.max(other.end)..range.end;
                [before, behind]
            })
            .filter(|range| range.start < range.end)
            .collect();
    }
    ranges
}
