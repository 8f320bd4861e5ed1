//! Short decimals without the general algorithm (Clinger's fast path): if the digits fit a 53-bit integer and the power
//! of ten is exact, one division rounds correctly. Most numbers that clients send are such decimals, and this takes
//! half the time. The digits are read in place, so that no byte is read twice.

/// Powers of ten that an `f64` holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Most digits whose integer is always below 2^53.
const MAX_DIGITS: usize = 15;

/// Most digits of an integer that always fits an `i64`.
const MAX_INTEGER_DIGITS: usize = 18;

/// The number at the beginning of a piece of JSON, correctly rounded, and its length in bytes; `None` if it has more
/// than 15 digits or an exponent, or is no number.
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

/// The integer at the beginning of a piece of JSON, and its length; `None` if it has more than 18 digits or is no
/// integer.
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

/// `before` extended by the digits from `at` on, and the position after the last digit. The value wraps around if there
/// are too many.
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

/// Whether a number ends at `at`. If not, an exponent or a fraction follows.
fn is_end(json: &[u8], at: usize) -> bool {
    let next = json.get(at);
    next.is_none_or(|byte| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
}

/// The nearest `f32`. `None` if the `f64` lies so close to the middle between two `f32` that its own rounding may
/// decide.
///
/// The 29 bits that are cut off decide; in the middle, their highest bit alone is set. Values of [`number`] are zero or
/// above 1e-15, so the result is never subnormal.
pub fn narrow(value: f64) -> Option<f32> {
    const CUT: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let decided = (value.to_bits() & CUT).abs_diff(MIDDLE) > 1;
    decided.then_some(value as f32)
}
