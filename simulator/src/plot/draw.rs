//! What both kinds of chart share: frame, legend, colours, text.

use super::{Axis, Chart, WIDTH, write_line};

/// Hues that differ for every kind of sight, for light and for dark surroundings (after Okabe and
/// Ito); the dark ones are lighter.
const COLOURS: [(&str, &str); 10] = [
    ("#0067a5", "#4fb3ff"),
    ("#d1570a", "#ff9b57"),
    ("#00805c", "#3ddbab"),
    ("#b3508b", "#f29ccf"),
    ("#8a6d00", "#e6c229"),
    ("#5b4bb5", "#a99cff"),
    ("#3a8fa8", "#8fdcf0"),
    ("#a02c2c", "#ff8a8a"),
    ("#5f6b3a", "#bccb86"),
    ("#6b6b6b", "#b5b5b5"),
];

const DASHES: [&str; 3] = ["", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\""];

/// Around the plotted area, px.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Left edge of the area.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

/// An entry of the legend.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// What it says.
    pub name: &'a str,
    /// How it looks.
    pub mark: Mark,
}

/// How an entry of the legend looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A filled square in the colour of the series.
    Bar(usize),
    /// A piece of the line of the series.
    Line(usize),
    /// A piece of a reference line.
    Reference,
    /// A piece of the line across groups of bars.
    Bound,
}

/// The rules that colour a picture.
pub fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (at, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        light.push_str(&format!(
            ".f{at}{{fill:{on_light}}}.s{at}{{stroke:{on_light}}}"
        ));
        dark.push_str(&format!(
            ".f{at}{{fill:{on_dark}}}.s{at}{{stroke:{on_dark}}}"
        ));
    }
    format!(
        "<style>text{{font-family:system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif;\
         font-size:12px;fill:#24292f}}.title{{font-size:15px;font-weight:600}}\
         .page{{fill:#ffffff}}.grid{{stroke:#d8dee4;stroke-width:1}}\
         .axis{{stroke:#57606a;stroke-width:1}}\
         .bound{{stroke:#24292f;stroke-width:2;fill:none}}\
         .line{{fill:none;stroke-width:2;stroke-linejoin:round}}\n{light}\n\
         @media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.page{{fill:#0d1117}}\
         .grid{{stroke:#30363d}}.axis{{stroke:#8b949e}}.bound{{stroke:#e6edf3}}\n{dark}}}\
         </style>\n"
    )
}

/// The colour's number of a series, and its dashes once the colours repeat.
pub fn look(series: usize) -> (usize, &'static str) {
    let dash = DASHES[(series / COLOURS.len()) % DASHES.len()];
    (series % COLOURS.len(), dash)
}

/// Text as XML takes it. Characters that XML has no place for become a replacement character.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(' '),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
}

/// About how wide a text is, px.
pub fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.7
}

/// Writes title and legend; tells the height they take.
pub fn head(chart: &Chart, keys: &[Key<'_>], top: f64, out: &mut String) -> f64 {
    let title = escaped(&chart.title);
    write_line(
        out,
        format_args!(
            "<text class=\"title\" x=\"16\" y=\"{:.0}\">{title}</text>",
            top + 26.0
        ),
    );
    let (mut x, mut y) = (16.0, top + 48.0);
    for key in keys {
        let needed = 26.0 + width(key.name) + 18.0;
        if x + needed > WIDTH && x > 16.0 {
            (x, y) = (16.0, y + 19.0);
        }
        mark(key.mark, x, y, out);
        let name = escaped(key.name);
        write_line(
            out,
            format_args!("<text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>", x + 26.0),
        );
        x += needed;
    }
    y + 16.0 - top
}

fn mark(mark: Mark, x: f64, y: f64, out: &mut String) {
    let middle = y - 4.0;
    let line = |class: String, dash: &str| {
        format!(
            "<line class=\"{class}\"{dash} x1=\"{x:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" \
             y2=\"{middle:.1}\"/>",
            x + 20.0
        )
    };
    let text = match mark {
        Mark::Bar(series) => {
            let (colour, _) = look(series);
            format!(
                "<rect class=\"f{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" \
                 rx=\"2\"/>",
                x + 6.0,
                y - 10.0
            )
        }
        Mark::Line(series) => {
            let (colour, dash) = look(series);
            line(format!("line s{colour}"), dash)
        }
        Mark::Reference => line("bound".to_owned(), " stroke-dasharray=\"4 4\""),
        Mark::Bound => line("bound".to_owned(), ""),
    };
    write_line(out, format_args!("{text}"));
}

/// Writes the vertical axis with its grid, and the line at the lower edge.
pub fn vertical(axis: &Axis, label: &str, frame: Frame, out: &mut String) {
    for tick in &axis.ticks {
        let y = frame.y(axis, *tick);
        write_line(
            out,
            format_args!(
                "<line class=\"grid\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
                frame.left, frame.right
            ),
        );
        write_line(
            out,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                frame.left - 8.0,
                y + 4.0,
                axis.label(*tick)
            ),
        );
    }
    write_line(
        out,
        format_args!(
            "<line class=\"axis\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            frame.left, frame.bottom, frame.right, frame.bottom
        ),
    );
    let middle = f64::midpoint(frame.top, frame.bottom);
    write_line(
        out,
        format_args!(
            "<text x=\"18\" y=\"{middle:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 18 {middle:.1})\">{}</text>",
            escaped(label)
        ),
    );
}

/// Writes the label of the horizontal axis at `y`.
pub fn horizontal_label(label: &str, frame: Frame, y: f64, out: &mut String) {
    if label.is_empty() {
        return;
    }
    let middle = f64::midpoint(frame.left, frame.right);
    write_line(
        out,
        format_args!(
            "<text x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escaped(label)
        ),
    );
}

// === impl Frame ===

impl Frame {
    /// An area of the usual size below a head that ends at `top`.
    pub fn below(top: f64) -> Self {
        Self {
            left: 96.0,
            right: WIDTH - 24.0,
            top,
            bottom: top + 280.0,
        }
    }

    /// Where `value` lies on the horizontal axis, px.
    pub fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.share(value) * (self.right - self.left)
    }

    /// Where `value` lies on the vertical axis, px.
    pub fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - axis.share(value) * (self.bottom - self.top)
    }
}
