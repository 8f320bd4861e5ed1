//! Markdown tables that are aligned for a terminal as well.

/// Rows of cells under headings.
#[derive(Debug)]
pub struct Sheet {
    rows: Vec<Vec<String>>,
}

// === impl Sheet ===

impl Sheet {
    /// A sheet with headings. All columns but the first are right-aligned.
    pub fn new(heads: &[&str]) -> Self {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Self { rows: vec![heads] }
    }

    /// Adds a row; one cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The Markdown, without a line end.
    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).max(3)).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells: Vec<String> = cells
                .map(|(at, (cell, width))| match at {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(at, width)| match at {
                0 => "-".repeat(*width),
                _ => format!("{}:", "-".repeat(width - 1)),
            })
            .collect();
        let mut lines = vec![line(&self.rows[0]), format!("| {} |", rule.join(" | "))];
        lines.extend(self.rows[1..].iter().map(line));
        lines.join("\n")
    }
}
