//! Numbers of bytes as people write them.

/// Units and their values. Units of thousands follow SI.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads `16777216`, `16MB`, `16 MiB` or `1.5GiB`; `None` if it is not a whole number of bytes.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = |it: char| it.is_ascii_digit() || it == '.';
    let end = text.find(|it| !is_number(it)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, times) = UNITS.iter().find(|(name, _)| *name == unit)?;
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(*times),
        Some(_) if *times == 1 => None,
        Some(_) => fraction(number, *times),
    }
}

fn fraction(number: &str, times: u64) -> Option<u64> {
    let bytes = number.parse::<f64>().ok()? * times as f64;
    // A number with so few digits is whole, or stands for the nearest whole one.
    (bytes < 9e15).then_some(bytes.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units_are_of_thousands_or_of_1024() {
        for (text, bytes) in [
            ("16777216", 16_777_216),
            ("0", 0),
            ("16MB", 16_000_000),
            ("16 MiB", 16 << 20),
            ("1.5GiB", 3 << 29),
            ("2kb", 2_000),
            (" 7 B ", 7),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "MB",
            "1.5",
            "-1",
            "16M",
            "1e3",
            "1.2.3KB",
            "99999999TB",
            "16 MB 2",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
