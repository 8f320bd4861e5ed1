//! `sextant top`: whether applications are served, renewed on a terminal until the user leaves.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Style, Stylize},
    widgets::{Paragraph, Row, Table},
};
use serde_json::Value;

use super::{
    Client, Error, Output,
    output::rows,
    status::{self, Status},
};

/// How soon a key is noticed.
const NOTICED: Duration = Duration::from_millis(100);
/// From so large a share in time on, an application counts as served.
const SERVED: f64 = 0.99;

/// Show on a terminal how applications are served, until `q` or Ctrl-C.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    every: u64,
}

impl Top {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        if output.json || !io::stdout().is_terminal() {
            let text = "`top` draws on a terminal: `sextant status` prints the same once";
            return Err(Error::Usage(text.to_owned()));
        }
        // If the service cannot be asked at all, the error is reported before the screen is taken.
        let seen = Status::of_all().fetch(client).await?;
        let every = Duration::from_secs(self.every.max(1));
        let mut terminal = ratatui::try_init().map_err(unusable)?;
        let watched = watch(left(), renewed(&mut terminal, client, (seen, every))).await;
        ratatui::restore();
        watched.map_err(unusable)
    }
}

/// Until somebody leaves, also while a service that hangs is waited for.
async fn watch(
    left: impl Future<Output = io::Result<()>>,
    renewed: impl Future<Output = io::Error>,
) -> io::Result<()> {
    tokio::select! {
        left = left => left,
        error = renewed => Err(error),
    }
}

/// Draws what was seen and looks again, until the terminal fails.
async fn renewed(
    terminal: &mut DefaultTerminal,
    client: &Client,
    (seen, every): (Value, Duration),
) -> io::Error {
    let mut seen = Ok(seen);
    loop {
        if let Err(error) = terminal.draw(|frame| draw(frame, &client.server(), &seen)) {
            return error;
        }
        tokio::time::sleep(every).await;
        seen = Status::of_all().fetch(client).await;
    }
}

/// Waits until somebody wants to leave.
async fn left() -> io::Result<()> {
    loop {
        while event::poll(Duration::ZERO)? {
            if leaves(&event::read()?) {
                return Ok(());
            }
        }
        tokio::time::sleep(NOTICED).await;
    }
}

fn leaves(event: &Event) -> bool {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press,
        ..
    }) = event
    else {
        return false;
    };
    let is_interrupt = modifiers.contains(KeyModifiers::CONTROL) && *code == KeyCode::Char('c');
    is_interrupt || matches!(code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, server: &str, seen: &Result<Value, Error>) {
    let lines = [
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [above, middle, below] = Layout::vertical(lines).areas(frame.area());
    let title = format!("Sextant at {server}: the last minute");
    frame.render_widget(Paragraph::new(title).bold(), above);
    match seen {
        Ok(seen) => frame.render_widget(table(rows(seen, "/applications")), middle),
        Err(error) => frame.render_widget(Paragraph::new(error.to_string()).red(), middle),
    }
    frame.render_widget(Paragraph::new("q: leave").dim(), below);
}

fn table(statuses: &[Value]) -> Table<'static> {
    let headings = status::HEADINGS.map(|heading| heading.trim_start_matches('#'));
    let widths = status::HEADINGS.map(|heading| match heading {
        "application" | "refused" => Constraint::Fill(2),
        _ => Constraint::Fill(1),
    });
    let rows = statuses
        .iter()
        .map(|status| Row::new(status::cells(status)).style(style(status)));
    Table::new(rows, widths)
        .header(Row::new(headings).dim())
        .column_spacing(2)
}

/// What is not served stands out.
fn style(status: &Value) -> Style {
    let share = status.pointer("/share_in_time").and_then(Value::as_f64);
    match share {
        Some(share) if share < SERVED => Style::new().fg(Color::Red),
        Some(_) => Style::new(),
        None => Style::new().dim(),
    }
}

fn unusable(source: io::Error) -> Error {
    let path = PathBuf::from("the terminal");
    Error::Io { path, source }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::json;

    use super::*;

    fn drawn(seen: &Result<Value, Error>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 8)).expect("a terminal");
        let drawn = terminal.draw(|frame| draw(frame, "http://127.0.0.1:8080", seen));
        drawn.expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn applications_stand_below_each_other() {
        let status = |name: &str, share: f64| {
            json!({"application": name, "rate_per_s": 12.5, "share_in_time": share, "refused": {"overloaded": 3},
                "p50": {"total_ms": 1.5}, "p99": {"total_ms": 4.5, "load_ms": 0.0, "queue_ms": 1.5, "run_ms": 2.0}})
        };
        let seen = json!({"applications": [status("digits", 1.0), status("speech", 0.5)]});
        let text = drawn(&Ok(seen));
        for words in [
            "http://127.0.0.1:8080",
            "digits",
            "speech",
            "100.0 %",
            "50.0 %",
            "3 overloaded",
            "q: leave",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn a_service_that_is_away_is_told_of() {
        let reason = "it restarts".to_owned();
        let text = drawn(&Err(Error::Answer { reason }));
        assert!(text.contains("unexpected answer: it restarts"), "{text}");
    }

    #[tokio::test]
    async fn somebody_leaves_while_the_service_says_nothing() {
        let key = std::future::ready(Ok(()));
        let left = watch(key, std::future::pending()).await;
        assert!(left.is_ok(), "{left:?}");
    }

    #[test]
    fn the_usual_keys_leave() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert!(leaves(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(leaves(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!leaves(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!leaves(&Event::FocusGained));
    }
}
