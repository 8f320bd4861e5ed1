//! Numbers as people read them.

/// A number with about three significant digits, as tables show it.
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if !value.is_finite() => value.to_string(),
        m if m >= 100.0 => format!("{value:.0}"),
        m if m >= 10.0 => format!("{value:.1}"),
        m if m >= 1.0 => format!("{value:.2}"),
        m if m >= 0.001 || m == 0.0 => format!("{value:.3}"),
        // As many decimal places as three digits need.
        m if m >= 1e-5 => format!("{value:.*}", (2.0 - m.log10().floor()) as usize),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(0.0), "0.000");
        assert_eq!(short(0.123_45), "0.123");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(0.000_32), "0.000320");
        assert_eq!(short(0.000_012), "0.0000120");
        assert_eq!(short(0.000_000_036), "3.60e-8");
    }
}
