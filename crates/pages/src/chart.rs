//! Charts as inline SVG. The style sheet gives colours and type by class. Each chart stands beside a table with the
//! same figures, so that nothing is shown in a chart alone.

use std::fmt::{self, Write as _};

mod desired;
mod frontier;
mod stages;

pub use desired::{Bar, DesiredChart};
pub use frontier::{Frontier, Point, Shape};
pub use stages::{Stage, Stages};

/// Text in SVG.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A chart that is being drawn.
struct Drawing(String);

impl Drawing {
    /// An empty chart with this size in units, and a title for people who cannot see it.
    fn new((width, height): (f64, f64), class: &str, title: &str) -> Self {
        let title = Text(title);
        Self(format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">"
        ))
    }

    /// Adds an element.
    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.0.write_fmt(element);
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }
}
