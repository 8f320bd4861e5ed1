//! Numbers in a form for people.

/// A number, or a reference to one, as templates pass it.
pub trait Number<T> {
    /// The number.
    fn get(&self) -> T;
}

impl Number<f64> for f64 {
    fn get(&self) -> f64 {
        *self
    }
}

impl Number<u64> for u64 {
    fn get(&self) -> u64 {
        *self
    }
}

impl<T, N: Number<T> + ?Sized> Number<T> for &N {
    fn get(&self) -> T {
        N::get(self)
    }
}

/// A time in milliseconds with its unit: `0.42 ms`, `18 ms`, `1.3 s`.
pub fn ms(value: impl Number<f64>) -> String {
    let value = value.get();
    match value {
        value if value < 0.0005 => "0 ms".to_owned(),
        value if value < 9.95 => format!("{value:.2} ms"),
        value if value < 99.5 => format!("{value:.1} ms"),
        value if value < 999.5 => format!("{value:.0} ms"),
        value if value < 99_500.0 => format!("{:.1} s", value / 1000.0),
        value => format!("{:.0} s", value / 1000.0),
    }
}

/// A time in microseconds.
pub fn us(value: impl Number<f64>) -> String {
    ms(value.get() / 1000.0)
}

/// Something a second: `0.2`, `12.5`, `1,830`.
pub fn rate(value: impl Number<f64>) -> String {
    let value = value.get();
    match value {
        value if value < 99.95 => format!("{value:.1}"),
        value => count(value.round() as u64),
    }
}

/// A share of one, in per cent: rounded down, so that only the whole is `100 %`.
pub fn share(value: impl Number<f64>) -> String {
    // In one step: 0.29 times 100 is a little less than 29.
    let tenths = (value.get() * 1000.0).floor();
    match tenths {
        tenths if tenths >= 1000.0 => "100 %".to_owned(),
        tenths => format!("{:.1} %", tenths / 10.0),
    }
}

/// US dollars: `$0.384`, `$12.50`, `$0.000021`.
pub fn usd(value: impl Number<f64>) -> String {
    let value = value.get();
    let digits = match value {
        0.0 => 2,
        value if value >= 1.0 => 2,
        // Three significant digits.
        value => (2.0 - value.log10().floor()).clamp(2.0, 12.0) as usize,
    };
    format!("${value:.digits$}")
}

/// A whole number, in groups of three digits.
pub fn count(value: impl Number<u64>) -> String {
    let digits = value.get().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A proportion or an error of a metric: four digits, or the power of ten of a number without a digit among these.
pub fn quality(value: impl Number<f64>) -> String {
    let value = value.get();
    match value.abs() {
        size if size >= 100.0 => format!("{value:.1}"),
        size if size > 0.0 && size < 0.000_05 => format!("{value:.1e}"),
        _ => format!("{value:.4}"),
    }
}

/// How long ago: `now`, `12 s ago`, `3 min ago`, `5 h ago`, `2 d ago`.
pub fn ago(now_ms: impl Number<u64>, at_ms: impl Number<u64>) -> String {
    let seconds = now_ms.get().saturating_sub(at_ms.get()) / 1000;
    match seconds {
        0 => "now".to_owned(),
        1..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// The time of day, UTC.
pub fn clock(at_ms: impl Number<u64>) -> String {
    let seconds = at_ms.get() / 1000 % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// A code or a word of the interface as words: `add_workers` is `add workers`.
pub fn words(code: impl AsRef<str>) -> String {
    code.as_ref().replace('_', " ")
}

/// A number that may be absent.
pub fn if_said(value: &Option<u32>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A reason as a sentence.
pub fn sentence(text: impl AsRef<str>) -> String {
    let text = text.as_ref().trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first
        .into_iter()
        .flatten()
        .chain(letters)
        .chain(['.'])
        .collect()
}

/// Bytes: `12.4 MiB`.
pub fn bytes(value: impl Number<u64>) -> String {
    let value = value.get() as f64;
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (value.max(1.0).log2() / 10.0) as usize;
    let power = power.min(units.len() - 1);
    let scaled = value / 1024f64.powi(power as i32);
    match power {
        0 => format!("{value:.0} B"),
        power => format!("{scaled:.1} {}", units[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_in_which_they_are_short() {
        let shown = [0.0, 0.42, 18.04, 250.4, 1300.0, 125_000.0].map(ms);
        assert_eq!(
            shown,
            ["0 ms", "0.42 ms", "18.0 ms", "250 ms", "1.3 s", "125 s"]
        );
        assert_eq!(us(420.0), "0.42 ms");
    }

    #[test]
    fn only_all_of_it_is_a_hundred_per_cent() {
        assert_eq!([1.0, 0.9999, 0.5].map(share), ["100 %", "99.9 %", "50.0 %"]);
        // Every whole per cent of a hundred is itself, whatever its binary form is.
        for percent in 0..100 {
            let expected = format!("{percent}.0 %");
            assert_eq!(share(f64::from(percent) / 100.0), expected);
        }
    }

    #[test]
    fn small_prices_keep_their_digits() {
        let shown = [0.0, 12.5, 0.384, 0.000_021].map(usd);
        assert_eq!(shown, ["$0.00", "$12.50", "$0.384", "$0.0000210"]);
    }

    #[test]
    fn small_errors_are_not_shown_as_none() {
        let shown = [0.0, 0.98, 0.000_05, 0.000_021, 250.04].map(quality);
        assert_eq!(shown, ["0.0000", "0.9800", "0.0001", "2.1e-5", "250.0"]);
    }

    #[test]
    fn numbers_are_grouped_and_moments_told_apart() {
        assert_eq!(
            [0u64, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([12.34, 1830.2].map(rate), ["12.3", "1,830"]);
        assert_eq!(ago(500_000u64, 320_000u64), "3 min ago");
        assert_eq!(clock(3_723_000u64), "01:02:03 UTC");
        assert_eq!([512u64, 13_002_342].map(bytes), ["512 B", "12.4 MiB"]);
    }
}
