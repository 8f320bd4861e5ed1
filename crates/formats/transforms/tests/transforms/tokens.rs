//! Sentences into token ids.

use bytes::Bytes;
use serde_json::json;
use sextant_transforms::{Error, Options, Transform};
use sextant_types::NamedTensor;

use crate::{WORDS, floats, output, refused, texts, with_files};

#[test]
fn sentences_become_ids_and_masks_of_one_length() {
    let options = json!({"tokenize": {"tokenizer": "t.json"}});
    let made = with_files(options, &[("t.json", WORDS)], &[]);
    let outputs = made
        .apply(&[texts("text", &[b"Good film", b"strange"])])
        .expect("ids");
    let ids = output(&outputs, "input_ids");
    assert_eq!(ids.shape(), [2, 3]);
    assert_eq!(ids.to_vec::<i64>().expect("ids"), [2, 3, 4, 2, 1, 0]);
    assert_eq!(
        output(&outputs, "attention_mask")
            .to_vec::<i64>()
            .expect("mask"),
        [1, 1, 1, 1, 1, 0]
    );
    let none = made.apply(&[texts("text", &[])]).expect("no rows");
    assert_eq!(output(&none, "input_ids").shape(), [0, 0]);
}

#[test]
fn sentences_are_cut_and_padded_as_asked() {
    let options =
        json!({"tokenize": {"tokenizer": "t.json", "max_tokens": 2, "pad_to": "max_tokens"}});
    let made = with_files(options, &[("t.json", WORDS)], &[]);
    assert_eq!(made.signature().outputs[0].shape, [None, Some(2)]);
    let outputs = made
        .apply(&[texts("text", &[b"good film good film", b""])])
        .expect("ids");
    assert_eq!(
        output(&outputs, "input_ids").to_vec::<i64>().expect("ids"),
        [2, 3, 2, 0]
    );
    let pairs = with_files(
        json!({"tokenize": {"tokenizer": "t.json"}}),
        &[("t.json", WORDS)],
        &["pair"],
    );
    let outputs = pairs
        .apply(&[texts("text", &[b"good"]), texts("pair", &[b"film"])])
        .expect("ids");
    assert_eq!(
        output(&outputs, "token_type_ids")
            .to_vec::<i64>()
            .expect("types"),
        [0, 1]
    );
}

#[test]
fn rows_are_filled_up_as_the_file_says() {
    let filled = |multiple: u64| {
        let padding = json!({"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": multiple,
            "pad_id": 0, "pad_type_id": 7, "pad_token": "[PAD]"});
        WORDS.replace(r#""padding":null"#, &format!(r#""padding":{padding}"#))
    };
    let two = [texts("text", &[b"good film", b"strange"])];
    let options = json!({"tokenize": {"tokenizer": "t.json"}});
    let fours = filled(4);
    let made = with_files(options.clone(), &[("t.json", fours.as_str())], &[]);
    let outputs = made.apply(&two).expect("ids");
    let of = |name| output(&outputs, name).to_vec::<i64>().expect("numbers");
    assert_eq!(of("input_ids"), [0, 2, 3, 4, 0, 0, 2, 1]);
    assert_eq!(of("attention_mask"), [0, 1, 1, 1, 0, 0, 1, 1]);
    assert_eq!(of("token_type_ids"), [7, 0, 0, 0, 7, 7, 0, 0]);
    // The signature tells the length that was asked for.
    let three =
        json!({"tokenize": {"tokenizer": "t.json", "max_tokens": 3, "pad_to": "max_tokens"}});
    let made = with_files(three, &[("t.json", fours.as_str())], &[]);
    let outputs = made.apply(&two).expect("ids");
    assert_eq!(output(&outputs, "input_ids").shape(), [2, 3]);
    let endless = filled(1 << 40);
    let made = with_files(options, &[("t.json", endless.as_str())], &[]);
    let error = made.apply(&two);
    assert!(matches!(error, Err(Error::TooLarge { .. })), "{error:?}");
}

#[test]
fn one_long_text_makes_no_long_rows_of_many_short_ones() {
    let made = with_files(
        json!({"tokenize": {"tokenizer": "t.json"}}),
        &[("t.json", WORDS)],
        &[],
    );
    let long = "good ".repeat(20_000);
    let mut all = vec![&b""[..]; 20_000];
    all[0] = long.as_bytes();
    let error = made.apply(&[texts("text", &all)]);
    assert!(
        matches!(
            error,
            Err(Error::TooLarge {
                what: "input_ids",
                ..
            })
        ),
        "{error:?}"
    );
}

#[test]
fn tokens_that_are_added_to_each_text_count_before_they_are_made() {
    let one = r#"{"SpecialToken":{"id":"[CLS]","type_id":0}},"#;
    let file = WORDS.replacen(one, &one.repeat(40), 1);
    let options = json!({"tokenize": {"tokenizer": "t.json"}});
    let made = with_files(options, &[("t.json", file.as_str())], &[]);
    let many = [texts("text", &vec![&b""[..]; 1000])];
    let outputs = made.apply(&many).expect("ids");
    assert_eq!(output(&outputs, "input_ids").shape(), [1000, 40]);
    let needs = made.needs_bytes(&many);
    assert!(
        needs > 1000 * 40 * 64,
        "a token takes some hundred bytes: {needs}"
    );
}

#[test]
fn long_texts_become_rows_that_overlap_and_pool_joins_them() {
    let options = json!({"tokenize": {"tokenizer": "t.json", "max_tokens": 4, "overlap": 1}});
    let made = with_files(options, &[("t.json", WORDS)], &[]);
    let outputs = made
        .apply(&[texts(
            "text",
            &[b"good film good film film", b"", b"film good"],
        )])
        .expect("ids");
    let (ids, index) = (
        output(&outputs, "input_ids"),
        output(&outputs, "text_index"),
    );
    assert_eq!(ids.shape(), [4, 4]);
    assert_eq!(
        ids.to_vec::<i64>().expect("ids"),
        [2, 3, 4, 3, 2, 3, 4, 4, 2, 0, 0, 0, 2, 4, 3, 0]
    );
    assert_eq!(index.to_vec::<i64>().expect("texts"), [0, 0, 1, 2]);
    let mask = output(&outputs, "attention_mask");
    let hidden = ids.to_vec::<i64>().expect("ids");
    let hidden: Vec<f32> = hidden.iter().map(|id| *id as f32).collect();
    let pool = with_files(json!({"pool": {"mode": "max"}}), &[], &["text_index"]);
    let inputs = [
        floats("hidden", &[4, 4, 1], &hidden),
        NamedTensor::new("attention_mask", mask.clone()),
        NamedTensor::new("text_index", index.clone()),
    ];
    let pooled = pool.apply(&inputs).expect("vectors");
    let vectors = output(&pooled, "embedding");
    assert_eq!(vectors.shape(), [3, 1]);
    assert_eq!(vectors.to_vec::<f32>().expect("floats"), [4.0, 2.0, 4.0]);
    // The mean is one over all tokens of a text, wherever it was cut.
    let mean = with_files(json!({"pool": {}}), &[], &["text_index"]);
    let pooled = mean.apply(&inputs).expect("vectors");
    let means = output(&pooled, "embedding")
        .to_vec::<f32>()
        .expect("floats");
    assert_eq!(means, [25.0 / 8.0, 2.0, 3.0]);
}

#[test]
fn overlaps_that_leave_no_room_are_refused() {
    for (options, mapped, expected) in [
        (
            json!({"max_tokens": 5, "overlap": 3}),
            &[][..],
            "at most `2`",
        ),
        (json!({"overlap": 0}), &[][..], "needs `max_tokens`"),
        (json!({"max_tokens": 1}), &[][..], "is 2 to 65536"),
        (
            json!({"max_tokens": 4, "overlap": 1}),
            &["pair"][..],
            "for texts alone",
        ),
    ] {
        let mut all = json!({"tokenizer": "t.json"});
        let more = options.as_object().expect("options").clone();
        all.as_object_mut().expect("options").extend(more);
        let options: Options = serde_json::from_value(json!({"tokenize": all})).expect("options");
        let files = [("t.json".to_owned(), Bytes::from_static(WORDS.as_bytes()))].into();
        let mapped = mapped.iter().map(|name| (*name).to_owned()).collect();
        let error = match Transform::new(&options, &files, &mapped) {
            Ok(_) => panic!("{options:?} was taken"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_text_that_is_none_names_its_row() {
    let made = with_files(
        json!({"tokenize": {"tokenizer": "t.json"}}),
        &[("t.json", WORDS)],
        &[],
    );
    let error = made.apply(&[texts("text", &[b"good", b"\xff\xfe"])]);
    assert!(
        matches!(
            error,
            Err(Error::Row {
                input: "text",
                row: 1,
                ..
            })
        ),
        "{error:?}"
    );
    let long = vec![b'a'; 10 << 20];
    let error = made.apply(&[texts("text", &[&long])]);
    assert!(matches!(error, Err(Error::Row { row: 0, .. })), "{error:?}");
    let missing = refused(json!({"tokenize": {"tokenizer": "t.json"}}));
    assert!(matches!(missing, Error::File { .. }), "{missing:?}");
}
