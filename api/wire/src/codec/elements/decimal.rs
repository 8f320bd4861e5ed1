//! Short decimals without the general algorithm (Clinger's fast path): when the digits fit a
//! 53-bit integer and the power of ten is exact, one division rounds correctly. That is most of
//! what clients send, and it takes half the time. The digits are read where they stand, so that nothing is passed over
//! twice.

/// Powers of ten that an `f64` holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Most digits whose integer is below 2^53 whatever they are.
const MAX_DIGITS: usize = 15;

/// Most digits of an integer that an `i64` holds whatever they are.
const MAX_INTEGER_DIGITS: usize = 18;

/// The number of at most 15 digits without an exponent that a piece of JSON begins with, correctly rounded, and
/// its length; `None` where it begins with anything else.
pub fn number(json: &[u8]) -> Option<(f64, usize)> {
    let is_negative = json.first() == Some(&b'-');
    let begin = usize::from(is_negative);
    let (mut integer, mut end) = digits(json, begin, 0);
    let (mut count, mut places) = (end - begin, 0);
    if count > 0 && json.get(end) == Some(&b'.') {
        let point = end;
        (integer, end) = digits(json, point + 1, integer);
        places = end - point - 1;
        count += places;
    }
    if count == 0 || count > MAX_DIGITS || !is_end(json, end) {
        return None;
    }
    let value = integer as f64 / POWERS[places];
    Some((if is_negative { -value } else { value }, end))
}

/// The integer of at most 18 digits that a piece of JSON begins with, and its length.
pub fn integer(json: &[u8]) -> Option<(i64, usize)> {
    let is_negative = json.first() == Some(&b'-');
    let begin = usize::from(is_negative);
    let (value, end) = digits(json, begin, 0);
    let count = end - begin;
    if count == 0 || count > MAX_INTEGER_DIGITS || !is_end(json, end) {
        return None;
    }
    let value = value as i64;
    Some((if is_negative { -value } else { value }, end))
}

/// `before` with the digits behind it from `at` on, as far as they fit, and where they end.
fn digits(json: &[u8], mut at: usize, before: u64) -> (u64, usize) {
    let mut value = before;
    while let Some(digit) = json.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

/// Whether a number has ended: it goes on with an exponent alone.
fn is_end(json: &[u8], at: usize) -> bool {
    let next = json.get(at);
    next.is_none_or(|byte| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
}

/// The nearest `f32`, unless the `f64` lies so close to the middle between two of them that its
/// own rounding may have decided: then `None`.
///
/// The 29 bits that are cut off decide; the middle is their highest bit alone. Values of
/// [`number`] are zero or above 1e-15, so the result is never subnormal.
pub fn narrow(value: f64) -> Option<f32> {
    const CUT: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let decided = (value.to_bits() & CUT).abs_diff(MIDDLE) > 1;
    decided.then_some(value as f32)
}
