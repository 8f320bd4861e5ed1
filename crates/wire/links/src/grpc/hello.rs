//! The caller of a link, and its leadership.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_metadata::MetadataStore;
use sextant_types::WorkerId;
use tokio::sync::{Mutex, watch};
use tonic::{
    Status,
    metadata::{AsciiMetadataValue, MetadataMap},
};

use crate::{
    grpc::{
        Error,
        proto::{WorkRequest, WorkRequests, work_request},
        server::Roles,
        stream::Gate,
    },
    link::ToWorker,
};

/// The versions of the messages that a process understands. Two processes can talk to each other if they have a version
/// in common.
///
/// A new version only adds to the previous one: fields, and messages that answer a field which a process of the
/// previous version does not send. So a fleet is upgraded process by process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// The oldest one.
    pub oldest: u32,
    /// The newest one.
    pub newest: u32,
}

/// The header with the oldest version that the caller understands. Processes of version 3 know no other header, and no
/// other version.
const PROTOCOL_HEADER: &str = "sextant-protocol";
/// The header with the newest version. Without it the oldest version is the only one.
const NEWEST_HEADER: &str = "sextant-protocol-newest";
const FLEET_HEADER: &str = "sextant-fleet";
const CALLER_HEADER: &str = "sextant-caller";
const TOKEN_HEADER: &str = "sextant-token";
const WORKER_HEADER: &str = "sextant-worker";

/// Longest time that the store may take to name the leader.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time for which a refused token is refused again without asking the store.
const REMEMBERED: Duration = Duration::from_millis(100);

/// The role of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Sends batches, loads and unloads. It leads or stands by.
    Dispatcher,
    /// Sends queries and inputs, and asks workers for statistics. It gives no orders.
    FrontEnd,
}

/// What a caller states about itself when a link opens.
#[derive(Debug, Clone)]
pub struct Hello {
    /// The versions of the messages that it understands.
    pub protocol: Protocol,
    /// The fleet that it belongs to.
    pub fleet: Arc<str>,
    /// Its role.
    pub caller: Caller,
    /// The leadership under which it acts.
    pub fence: Fence,
}

/// The fencing token under which a role now acts; none while it does not lead. Every frame to a worker carries it:
/// workers take orders only with the greatest token that they have seen.
#[derive(Debug, Clone, Default)]
pub struct Fence(Option<watch::Receiver<Option<u64>>>);

/// Decides who may give orders to the workers of a process. A caller's token is not trusted: the store is asked, once
/// for each token.
pub(crate) struct Tokens {
    metadata: Arc<dyn MetadataStore>,
    /// The last token that the store named.
    known: AtomicU64,
    /// Lets one caller at a time ask the store; holds the last refusal.
    asking: Mutex<Option<Refusal>>,
}

struct Refusal {
    token: u64,
    at: Instant,
    reason: String,
}

/// What the frames of a caller must satisfy before their messages are accepted.
pub(crate) struct Orders {
    pub(crate) roles: Roles,
    pub(crate) caller: Caller,
}

/// The contents of an opening.
pub(crate) struct Opening {
    pub(crate) caller: Caller,
    pub(crate) token: u64,
    pub(crate) worker: Option<WorkerId>,
}

// === impl Protocol ===

impl Protocol {
    /// The versions that this release understands: its own and the previous one.
    pub const OWN: Self = Self {
        oldest: 3,
        newest: 4,
    };

    /// The versions that the previous release understands.
    pub const BEFORE: Self = Self {
        oldest: 3,
        newest: 3,
    };

    /// The versions of a process that must speak at most a version; `None` if this release does not have it.
    pub fn up_to(newest: u32) -> Option<Self> {
        let is_known = (Self::OWN.oldest..=Self::OWN.newest).contains(&newest);
        is_known.then_some(Self {
            newest,
            ..Self::OWN
        })
    }

    fn write(self, headers: &mut MetadataMap) {
        headers.insert(PROTOCOL_HEADER, self.oldest.into());
        if self.newest > self.oldest {
            headers.insert(NEWEST_HEADER, self.newest.into());
        }
    }

    /// Refuses a caller that has no version in common with this process.
    fn check(self, oldest: Option<u64>, newest: Option<u64>) -> Result<(), Status> {
        let (own_oldest, own_newest) = (u64::from(self.oldest), u64::from(self.newest));
        let theirs = oldest.map(|oldest| (oldest, newest.unwrap_or(oldest)));
        match theirs {
            Some((oldest, newest)) if oldest <= own_newest && newest >= own_oldest => Ok(()),
            _ => {
                let theirs = theirs.map_or("none".to_owned(), |(oldest, newest)| {
                    format!("{oldest} to {newest}")
                });
                Err(Status::failed_precondition(format!(
                    "the caller speaks versions {theirs} of the protocol, this process {self}: \
                     run the same release, or one and the next"
                )))
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

// === impl Caller ===

impl Caller {
    pub(crate) const ALL: [Self; 2] = [Self::Dispatcher, Self::FrontEnd];

    /// The name of the role in the certificate of a process, if certificates name roles.
    pub(crate) fn certificate_name(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher.sextant",
            Self::FrontEnd => "api.sextant",
        }
    }

    /// The name on the wire.
    fn name(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::FrontEnd => "front_end",
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Fence ===

impl Fence {
    /// The fence of a role that never leads.
    pub fn none() -> Self {
        Self(None)
    }

    /// Follows a leadership: has its token while it lasts. The token must be published before the first order under it.
    pub fn following(token: watch::Receiver<Option<u64>>) -> Self {
        Self(Some(token))
    }

    /// The present token; 0 for none.
    pub(crate) fn token(&self) -> u64 {
        let token = self.0.as_ref();
        token.and_then(|it| *it.borrow()).unwrap_or_default()
    }
}

// === impl Hello ===

impl Hello {
    /// Writes it into the opening headers of a call, with the worker's name if there is one.
    pub(crate) fn write(
        &self,
        headers: &mut MetadataMap,
        worker: Option<&WorkerId>,
    ) -> Result<(), Error> {
        let fleet = AsciiMetadataValue::try_from(&*self.fleet);
        let fleet = fleet.map_err(|_| Error::Fleet(self.fleet.to_string()))?;
        self.protocol.write(headers);
        headers.insert(FLEET_HEADER, fleet);
        headers.insert(
            CALLER_HEADER,
            AsciiMetadataValue::from_static(self.caller.name()),
        );
        headers.insert(TOKEN_HEADER, self.fence.token().into());
        // All characters of a worker's name are permitted in a header.
        if let Some(name) = worker.and_then(|it| AsciiMetadataValue::try_from(it.as_str()).ok()) {
            headers.insert(WORKER_HEADER, name);
        }
        Ok(())
    }
}

// === impl Opening ===

impl Opening {
    /// Reads the opening headers of a call to a process of `fleet` that understands `protocol`.
    pub(crate) fn read(
        headers: &MetadataMap,
        (fleet, protocol): (&str, Protocol),
    ) -> Result<Self, Status> {
        let text = |name| headers.get(name).and_then(|it| it.to_str().ok());
        let number = |name| text(name).and_then(|it| it.parse::<u64>().ok());
        protocol.check(number(PROTOCOL_HEADER), number(NEWEST_HEADER))?;
        if text(FLEET_HEADER) != Some(fleet) {
            let theirs = text(FLEET_HEADER).unwrap_or_default();
            return Err(Status::failed_precondition(format!(
                "the caller belongs to fleet `{theirs}`, this process to `{fleet}`: \
                 set `fleet.name` alike"
            )));
        }
        let caller = text(CALLER_HEADER);
        let caller = Caller::ALL.into_iter().find(|it| Some(it.name()) == caller);
        let worker = text(WORKER_HEADER).map(WorkerId::new).transpose();
        Ok(Self {
            caller: caller
                .ok_or_else(|| Status::invalid_argument("the caller's role is unknown"))?,
            token: number(TOKEN_HEADER).unwrap_or_default(),
            worker: worker.map_err(|error| Status::invalid_argument(error.to_string()))?,
        })
    }
}

// === impl Tokens ===

impl Tokens {
    pub(crate) fn new(metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            metadata,
            known: AtomicU64::new(0),
            asking: Mutex::default(),
        }
    }

    /// Whether `caller` may act under `token`. A caller with token 0 stands by and is accepted. Only the store makes a
    /// token known. So nobody can lock out the leader by naming a greater token, and a store whose clock was
    /// temporarily in the future locks out nobody for ever.
    pub(crate) async fn admit(&self, caller: Caller, token: u64) -> Result<(), String> {
        if self.is_known(caller, token) {
            return Ok(());
        }
        let mut refused = self.asking.lock().await;
        // Another caller's question may have answered this one.
        if self.is_known(caller, token) {
            return Ok(());
        }
        if let Some(last) = &*refused
            && last.token == token
            && last.at.elapsed() < REMEMBERED
        {
            return Err(last.reason.clone());
        }
        let asked =
            tokio::time::timeout(PATIENCE, self.metadata.leader(sextant_fleet::LEADING_ROLE)).await;
        let leader = match asked {
            Ok(Ok(leader)) => leader,
            Ok(Err(error)) => return Err(format!("the store does not say who leads: {error}")),
            Err(_) => return Err("the store does not say who leads".to_owned()),
        };
        match leader {
            Some(leader) if leader.token == token => {
                self.known.store(token, Ordering::Release);
                Ok(())
            }
            other => {
                let leads = match other {
                    Some(leader) => format!("another leads with {}", leader.token),
                    None => "nobody leads".to_owned(),
                };
                let reason = format!("the {caller} acts under token {token}, {leads}");
                *refused = Some(Refusal {
                    token,
                    at: Instant::now(),
                    reason: reason.clone(),
                });
                Err(reason)
            }
        }
    }

    fn is_known(&self, caller: Caller, token: u64) -> bool {
        token == 0 || caller == Caller::FrontEnd || token == self.known.load(Ordering::Acquire)
    }
}

// === impl Orders ===

#[async_trait]
impl Gate<ToWorker> for Orders {
    /// Orders require a leadership.
    fn check(&self, frame: &WorkRequests) -> Option<Result<(), String>> {
        let caller = self.caller;
        let leads = frame.token != 0 && caller != Caller::FrontEnd;
        if !leads && frame.messages.iter().any(is_order) {
            return Some(Err(format!("the {caller} gives orders and does not lead")));
        }
        let is_known = self.roles.tokens().is_known(caller, frame.token);
        is_known.then_some(Ok(()))
    }

    async fn ask(&self, frame: &WorkRequests) -> Result<(), String> {
        self.roles.tokens().admit(self.caller, frame.token).await
    }
}

/// Whether a request changes or occupies the worker. Any caller may ask for information.
fn is_order(request: &WorkRequest) -> bool {
    let body = request.body.as_ref();
    body.is_some_and(|it| {
        matches!(
            it,
            work_request::Body::Infer(_) | work_request::Body::Order(_)
        )
    })
}
