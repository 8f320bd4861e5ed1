//! Short decimals without the general algorithm (Clinger's fast path): when the digits fit a
//! 53-bit integer and the power of ten is exact, one division rounds correctly. That is most of
//! what clients send, and it takes half the time.

/// Powers of ten that an `f64` holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Most digits whose integer is below 2^53 whatever they are.
const MAX_DIGITS: usize = 15;

/// The value of a JSON number of at most 15 digits without an exponent, correctly rounded; `None`
/// for all others.
pub fn exact(token: &str) -> Option<f64> {
    let bytes = token.as_bytes();
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    // One more byte than digits: the point.
    if digits.len() > MAX_DIGITS + 1 {
        return None;
    }
    let (mut integer, mut count, mut fraction) = (0u64, 0, None);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                integer = 10 * integer + u64::from(byte - b'0');
                count += 1;
            }
            b'.' if fraction.is_none() => fraction = Some(count),
            _ => return None,
        }
    }
    if count == 0 || count > MAX_DIGITS {
        return None;
    }
    let places = fraction.map_or(0, |whole| count - whole);
    let value = integer as f64 / POWERS[places];
    Some(if digits.len() < bytes.len() {
        -value
    } else {
        value
    })
}

/// The nearest `f32`, unless the `f64` lies so close to the middle between two of them that its
/// own rounding may have decided: then `None`.
///
/// The 29 bits that are cut off decide; the middle is their highest bit alone. Values of
/// [`exact`] are zero or above 1e-15, so the result is never subnormal.
pub fn narrow(value: f64) -> Option<f32> {
    const CUT: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let decided = (value.to_bits() & CUT).abs_diff(MIDDLE) > 1;
    decided.then_some(value as f32)
}
