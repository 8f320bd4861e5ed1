//! Looks at the pages for people: `bench page` counts, `picture` takes the README's picture.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::provision::{self, Provisions, needs};
use crate::server::{self, Server};
use crate::{demo, paths, shell};

/// The pages that `tests/pages/look.py` opens.
const PAGES: [&str; 4] = ["/", "/registered", "/size", "/answer"];
/// The file of the README's picture.
const PICTURE: &str = "docs/images/pages.png";
/// The targets of the queries, milliseconds and accuracy.
const TARGETS: [(f64, f64); 3] = [(50.0, 0.9), (50.0, 0.95), (500.0, 0.98)];
/// Longest time until the first answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time of load before pages are looked at.
const LOAD: Duration = Duration::from_secs(20);

/// A service with something to show.
struct Bed {
    provisioned: Provisions,
    server: Server,
}

/// The counts.
pub struct PageFigures {
    /// Violations that axe-core finds, over all pages, themes and widths.
    pub violations: usize,
    /// Size of all pages and what they load, compressed with gzip, bytes.
    pub gzip_bytes: f64,
}

/// Looks at every page in both themes, on a phone and on a screen.
pub fn look() -> Result<PageFigures> {
    let bed = Bed::prepare(Duration::ZERO)?;
    let mut looker = bed.looker();
    looker.args(PAGES).arg("/answer/refused").arg("--weigh");
    let seen = shell::objects(shell::output(&mut looker)?.as_bytes());
    let violations = seen.iter().filter_map(|it| it["violations"].as_array());
    let weight = seen.iter().find_map(|it| it["gzip_bytes"].as_f64());
    Ok(PageFigures {
        violations: violations.map(Vec::len).sum(),
        gzip_bytes: weight.context("`look.py` tells no weight")?,
    })
}

/// Writes the README's picture.
pub fn picture() -> Result<()> {
    let bed = Bed::prepare(LOAD)?;
    let folder = paths::target("pictures");
    let mut looker = bed.looker();
    looker
        .arg("/")
        .args(["--widths", "1280", "--themes", "light", "--pictures"]);
    shell::output(looker.arg(&folder))?;
    let path = paths::root().join(PICTURE);
    let parent = path.parent().context("a folder")?;
    std::fs::create_dir_all(parent)?;
    std::fs::copy(folder.join("served-light-1280.png"), &path)?;
    shell::say(format!("wrote {}", path.display()));
    Ok(())
}

// === impl Bed ===

impl Bed {
    /// A service with the demo's models that has had load for `load`. Its data remain, so that the models are already
    /// registered the next time.
    fn prepare(load: Duration) -> Result<Self> {
        let provisioned = provision::runtime()?;
        needs::install(needs::BROWSER)?;
        let binary = server::build_quickly()?;
        let data = paths::target("pages");
        let address = server::free_address()?;
        let command = server::sextant(&binary, &provisioned, address, &data);
        let server = Server::start("sextant", command, address, "/health/ready")?;
        demo::register(&binary, address)?;
        let bed = Self {
            provisioned,
            server,
        };
        bed.ask(&binary, load)?;
        Ok(bed)
    }

    /// Sends queries that can be answered, for `load` and at least once, and queries that cannot.
    fn ask(&self, binary: &Path, load: Duration) -> Result<()> {
        let address = format!("http://{}", self.server.address);
        let set = ["--latency-ms", "50", "--min-accuracy", "0.95"];
        let mut command = shell::command(binary);
        command.args(["--server", &address, "application", "set", "digits"]);
        shell::run(command.args(set))?;
        let queries = TARGETS.map(|(latency_ms, min_accuracy)| {
            demo::query(&json!({"latency_ms": latency_ms, "min_accuracy": min_accuracy}))
        });
        let (begun, mut answered) = (Instant::now(), 0);
        while answered == 0 || begun.elapsed() < load {
            // An answer that is late because the machine is busy may be in the picture.
            let asked = queries
                .iter()
                .map(|query| self.server.ask("/v1/queries", query));
            answered += asked.filter(Result::is_ok).count();
            ensure!(
                answered > 0 || begun.elapsed() < PATIENCE,
                "no query is answered"
            );
        }
        let mut refused = demo::query(&json!({"min_accuracy": 0.9999}));
        refused["id"] = json!("refused");
        let answer = self.server.ask("/v1/queries", &refused);
        ensure!(
            answer.is_err(),
            "nothing is as accurate as that: {answer:?}"
        );
        Ok(())
    }

    fn looker(&self) -> Command {
        let mut command = shell::command(&self.provisioned.python);
        command
            .arg(paths::root().join("tests/pages/look.py"))
            .arg(format!("http://{}", self.server.address));
        command
    }
}
