//! Strings in one buffer: cut, joined, resized and passed on as they are.

use bytes::Bytes;
use proptest::prelude::*;
use sextant_types::{Fill, Tensor, Texts, TextsBuilder};

fn texts(of: &[&str]) -> Texts {
    Texts::collect(of).expect("they are short")
}

fn all(texts: &Texts) -> Vec<String> {
    let texts = texts.iter().map(String::from_utf8_lossy);
    texts.map(|text| text.into_owned()).collect()
}

#[test]
fn strings_of_any_bytes_are_kept() {
    let given: [&[u8]; 5] = [b"", b"a\0b", "é😀".as_bytes(), b"\xff\xfe", b""];
    let texts = Texts::collect(given).expect("they are short");
    assert_eq!(texts.len(), 5);
    assert!(texts.iter().eq(given));
    assert_eq!(texts.get(1), Some(&b"a\0b"[..]));
    assert_eq!(texts.get(5), None);
    // Four bytes for each element and four more, beside the texts.
    assert_eq!(texts.held_bytes(), texts.bytes().len() + 4 * 6);
    assert_eq!(Texts::empty(3), self::texts(&["", "", ""]));
    let one = Texts::one(Bytes::from_static(b"whole")).expect("it is short");
    assert_eq!(one, self::texts(&["whole"]));
    // The same bytes cut in other places are different texts.
    assert_ne!(self::texts(&["ab", "c"]), self::texts(&["a", "bc"]));
}

#[test]
fn parts_that_do_not_fit_are_no_texts() {
    let cut = texts(&["one", "two", "three"]).slice(1..3);
    let again = Texts::from_parts(cut.bytes().clone(), cut.places().clone());
    assert_eq!(again.as_ref(), Some(&cut));
    assert_eq!(all(&cut), ["two", "three"]);
    let places = |of: &[u32]| -> Bytes { of.iter().flat_map(|it| it.to_le_bytes()).collect() };
    for (bytes, of) in [
        (&b"ab"[..], &[][..]),
        (b"ab", &[0]),
        (b"ab", &[0, 1]),
        (b"ab", &[0, 3]),
        (b"ab", &[0, 2, 1]),
        (b"ab", &[2, 0]),
        (b"", &[0, u32::MAX]),
    ] {
        let bytes = Bytes::from_static(bytes);
        assert_eq!(Texts::from_parts(bytes, places(of)), None, "{of:?}");
    }
    let odd = Bytes::from_static(&[0, 0, 0, 0, 1]);
    assert_eq!(Texts::from_parts(Bytes::new(), odd), None);
}

#[test]
fn a_text_is_written_in_pieces() {
    let mut built = TextsBuilder::default();
    built.text().extend_from_slice(b"in ");
    built.text().extend_from_slice(b"pieces");
    built.end().expect("it is short");
    built.push(b"at once").expect("it is short");
    assert_eq!((built.len(), built.is_empty()), (2, false));
    assert!(built.iter().eq([&b"in pieces"[..], b"at once"]));
    built
        .extend(&texts(&["x", "yz", ""]).slice(1..3))
        .expect("they are short");
    assert_eq!(all(&built.finish()), ["in pieces", "at once", "yz", ""]);
}

#[test]
fn rows_are_cut_shared_and_joined() {
    let tensor = Tensor::from_strings(vec![3, 2], ["a", "bc", "", "d", "e", "f"]);
    let tensor = tensor.expect("three rows");
    let last = tensor.slice_rows(1, 2).expect("two rows");
    assert_eq!(all(last.texts().expect("strings")), ["", "d", "e", "f"]);
    let inside = tensor.texts().expect("strings").bytes().as_ptr_range();
    assert!(inside.contains(&last.texts().expect("strings").bytes().as_ptr()));
    let first = tensor.slice_rows(0, 1).expect("a row");
    let joined = Tensor::concat(&[&last, &first]).expect("they are alike");
    assert_eq!(
        all(joined.texts().expect("strings")),
        ["", "d", "e", "f", "a", "bc"]
    );
    let wider = first.resized(&[1, 3], Fill::Value(0.0)).expect("it grows");
    assert_eq!(all(wider.texts().expect("strings")), ["a", "bc", ""]);
    let again = first.resized(&[2, 3], Fill::Repeated).expect("it grows");
    assert_eq!(
        all(again.texts().expect("strings")),
        ["a", "bc", "a", "a", "bc", "a"]
    );
    let flat = tensor.reshaped(vec![6]).expect("as many");
    assert_eq!(flat.texts(), tensor.texts());
    assert!(tensor.reshaped(vec![5]).is_err());
}

proptest! {
    #[test]
    fn what_is_cut_and_joined_is_what_it_was(
        given in proptest::collection::vec(".{0,5}", 0..20),
        at in 0usize..20,
    ) {
        let whole = Texts::collect(&given).expect("they are short");
        let at = at.min(given.len());
        let mut joined = TextsBuilder::default();
        joined.extend(&whole.slice(0..at)).expect("they are short");
        joined.extend(&whole.slice(at..given.len())).expect("they are short");
        prop_assert_eq!(joined.finish(), whole);
    }
}
