//! Every change has its entry in the audit record, whatever becomes of the connection.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sextant_api::serve;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Api, Recorder, Settings};

/// Requests of each kind.
const EACH: usize = 40;

/// A reset comes this long after the request at most, microseconds.
const LATEST_RESET_US: u64 = 9_000;

/// A change that is asked for.
struct Change {
    method: &'static str,
    path: String,
    body: String,
}

/// A registry's file that somebody else writes, for as long as this lives.
struct WriteLock(std::process::Child);

impl WriteLock {
    fn take(file: &std::path::Path) -> Self {
        const HOLD: &str = "import sqlite3, sys\n\
            held = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
            held.execute('begin immediate')\n\
            print('held', flush=True)\n\
            sys.stdin.read()\n";
        let mut holder = Command::new("python3")
            .args(["-c", HOLD])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut said = String::new();
        let out = holder.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut said).expect("a line");
        assert_eq!(said.trim(), "held");
        Self(holder)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it has ended");
    }
}

/// Whoever stores a file while the registry is held is told that it is stored, and the entry comes when it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_outlasts_a_registry_that_is_held_longer_than_a_client_waits() {
    let mut settings = Settings::default();
    settings.auth.audit_patience = Some(Duration::from_millis(1));
    let api = Api::with(Recorder::answering(), settings).await;
    let held = WriteLock::take(&api.folder().join("registry.db"));
    let stored = api.call("PUT", "/v1/artefacts/kept", "1").await;
    assert_eq!(stored.status, 201);
    let path = "/v1/audit?action=artefact.put";
    let entries = async || {
        let audit = api.get(path).await.json();
        audit["entries"].as_array().map(Vec::len)
    };
    assert_eq!(entries().await, Some(0));
    drop(held);
    let written = async {
        while entries().await != Some(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let written = tokio::time::timeout(Duration::from_secs(60), written).await;
    written.expect("the entry is written");
}

/// How a client asks for a change and leaves before it is answered.
#[derive(Clone, Copy)]
enum Leaves {
    /// It resets its connection.
    ByReset,
    /// It resets the stream of an HTTP/2 connection, which goes on.
    ByResetOfStream,
}

fn change(method: &'static str, path: &str, body: &str) -> Change {
    let (path, body) = (path.to_owned(), body.to_owned());
    Change { method, path, body }
}

fn application(name: &str) -> String {
    format!(r#"{{"name":"{name}","metric":"top1"}}"#)
}

fn key(name: &str) -> String {
    format!(r#"{{"name":"{name}","scopes":["query"]}}"#)
}

/// Sends all and leaves each some time later. The pause is no wait for anything: it is where in the server's
/// work the client goes.
async fn send_and_leave(
    address: SocketAddr,
    changes: &[Change],
    leaves: Leaves,
    mut pause: impl FnMut() -> Duration,
) {
    match leaves {
        Leaves::ByReset => {
            for change in changes {
                let Change { method, path, body } = change;
                let length = body.len();
                let request = format!(
                    "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                let mut client = TcpStream::connect(address).await.expect("a connection");
                client.set_zero_linger().expect("an option");
                client.write_all(request.as_bytes()).await.expect("sent");
                tokio::time::sleep(pause()).await;
            }
        }
        Leaves::ByResetOfStream => {
            let (mut client, mut driving) = greeted(address).await;
            for change in changes {
                // The server ends a connection that has reset many streams.
                if client.ready().await.is_err() {
                    driving.await.expect("no panic").ok();
                    (client, driving) = greeted(address).await;
                    client
                        .ready()
                        .await
                        .expect("a new connection takes a request");
                }
                let request = Request::builder()
                    .method(change.method)
                    .uri(format!("http://{address}{}", change.path))
                    .body(Full::new(Bytes::from(change.body.clone())))
                    .expect("a request");
                // Giving up the answer resets the stream.
                tokio::time::timeout(pause(), client.send_request(request))
                    .await
                    .ok();
            }
            drop(client);
            driving.await.expect("no panic").ok();
        }
    }
}

/// An HTTP/2 connection, and the task that drives it.
async fn greeted(
    address: SocketAddr,
) -> (
    http2::SendRequest<Full<Bytes>>,
    JoinHandle<hyper::Result<()>>,
) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let begun = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (client, connection) = begun.expect("a greeting");
    (client, tokio::spawn(connection))
}

/// What is there to be deleted, and all requests.
async fn changes(api: &Api) -> Vec<Change> {
    let mut changes = Vec::new();
    for at in 0..EACH {
        let doomed = application(&format!("doomed-{at}"));
        api.call("POST", "/v1/applications", doomed).await;
        api.call("PUT", &format!("/v1/artefacts/doomed-{at}"), "x")
            .await;
        let created = api.call("POST", "/v1/keys", key("doomed")).await.json();
        let id = created["key"]["id"].as_str().expect("an id").to_owned();
        changes.extend([
            change(
                "POST",
                "/v1/applications",
                &application(&format!("new-{at}")),
            ),
            change("DELETE", &format!("/v1/applications/doomed-{at}"), ""),
            change("PUT", &format!("/v1/artefacts/new-{at}"), "content"),
            change("DELETE", &format!("/v1/artefacts/doomed-{at}"), ""),
            change("POST", "/v1/keys", &key(&format!("new-{at}"))),
            change("DELETE", &format!("/v1/keys/{id}"), ""),
        ]);
    }
    changes
}

/// Texts at `member` of a list.
async fn listed(api: &Api, path: &str, (list, member): (&str, &str)) -> BTreeSet<String> {
    let json = api.get(path).await.json();
    let items = json[list].as_array().expect("a list").iter();
    let texts = items.filter_map(|item| item[member].as_str());
    texts.map(str::to_owned).collect()
}

/// What the stores show of each action: its name, and what it was done to.
async fn effects(api: &Api) -> BTreeSet<(&'static str, String)> {
    let applications = listed(api, "/v1/applications", ("applications", "name")).await;
    let artefacts = listed(api, "/v1/artefacts", ("artefacts", "path")).await;
    let keys = api.get("/v1/keys").await.json();
    let mut effects = BTreeSet::new();
    for (names, created, deleted) in [
        (applications, "application.create", "application.delete"),
        (artefacts, "artefact.put", "artefact.delete"),
    ] {
        let all = (0..EACH).flat_map(|at| [format!("new-{at}"), format!("doomed-{at}")]);
        effects.extend(all.filter_map(|name| {
            let is_new = name.starts_with("new");
            let done = names.contains(&name) == is_new;
            done.then_some((if is_new { created } else { deleted }, name))
        }));
    }
    for key in keys["keys"].as_array().expect("a list") {
        let id = key["id"].as_str().expect("an id").to_owned();
        if key["name"] != "doomed" {
            effects.insert(("key.create", id));
        } else if key["revoked_ms"].is_u64() {
            effects.insert(("key.revoke", id));
        }
    }
    effects
}

/// Actions and subjects of all entries that were made behind `known`.
async fn entries(api: &Api, known: &BTreeSet<String>) -> BTreeSet<(String, String)> {
    let json = api.get("/v1/audit?limit=1000").await.json();
    let entries = json["entries"].as_array().expect("a list").iter();
    let new = entries.filter(|entry| !known.contains(entry["id"].as_str().unwrap_or_default()));
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    new.map(|entry| (text(&entry["action"]), text(&entry["subject"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_early_leaves_an_entry_for_every_change() {
    everything_has_its_entry(Leaves::ByReset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_leaves_an_entry_for_every_change() {
    everything_has_its_entry(Leaves::ByResetOfStream).await;
}

async fn everything_has_its_entry(leaves: Leaves) {
    let seed = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let api = Api::new(Recorder::answering()).await;
    let mut changes = changes(&api).await;
    changes.shuffle(&mut random);
    let known = listed(&api, "/v1/audit?limit=1000", ("entries", "id")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, api.state.clone(), shutdown.clone()));
    let pause = || Duration::from_micros(random.random_range(0..LATEST_RESET_US));
    send_and_leave(address, &changes, leaves, pause).await;
    shutdown.cancel();
    serving.await.expect("no panic").expect("a clean end");
    let effects = effects(&api).await;
    let entries = entries(&api, &known).await;
    assert!(!effects.is_empty(), "nothing took effect, seed {seed}");
    let effects: BTreeSet<_> = effects
        .into_iter()
        .map(|(action, subject)| (action.to_owned(), subject))
        .collect();
    let lost: Vec<_> = effects.difference(&entries).collect();
    assert!(lost.is_empty(), "without an entry: {lost:?}, seed {seed}");
    let invented: Vec<_> = entries.difference(&effects).collect();
    assert!(invented.is_empty(), "not done: {invented:?}, seed {seed}");
}
