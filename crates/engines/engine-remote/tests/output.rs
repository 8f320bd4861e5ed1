//! What a child process says is logged, line by line, with the runtime's name.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_engine::{Engine, Error, LoadRequest};
use sextant_engine_remote::{Program, RemoteConfig, RemoteEngine, Source};
use sextant_types::{Digest, Optimization, Precision};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock();
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        let log = self.0.lock();
        String::from_utf8_lossy(&log).into_owned()
    }
}

#[test]
fn both_outputs_are_logged_and_long_lines_are_cut() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_writer(move || writer.clone())
        .init();
    let script = "echo spoken; echo complained >&2; \
                  head -c 100000 /dev/zero | tr '\\0' 'x' >&2; printf '\\033[31mred\\n' >&2";
    let program = Program {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..Program::default()
    };
    let mut config = RemoteConfig::new("talker", Source::Command(program));
    config.ready_timeout = Duration::from_secs(60);
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    let manifest = r#"{"format":"sextant-remote/1","runtime":"talker","model":"m"}"#;
    let loaded = engine.load(&LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: manifest.into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    });
    let error = loaded.err().expect("it ends before it is ready");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().len() < 1200, "{error}");
    let text = log.text();
    let lines = |word: &str| {
        let said = |line: &&str| line.contains("runtime=\"talker\"") && line.contains(word);
        text.lines().filter(said).count()
    };
    assert_eq!((lines(" spoken"), lines(" complained")), (1, 1), "{text}");
    assert!(lines("xxxx") >= 100_000 / 4096, "{text}");
    let longest = text.lines().map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 5000), "{longest:?}");
    assert!(!text.contains('\u{1b}'), "control characters reach the log");
}
