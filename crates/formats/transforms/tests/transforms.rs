//! What each transform makes of its inputs.

use std::{collections::BTreeMap, io::Cursor};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_transforms::{Error, MOST_BYTES, Options, Transform};
use sextant_types::{Data, NamedTensor, Tensor};

fn transform(options: Value) -> Transform {
    with_files(options, &[], &[])
}

fn with_files(options: Value, files: &[(&str, &str)], mapped: &[&str]) -> Transform {
    let options: Options = serde_json::from_value(options).expect("options");
    let files: BTreeMap<String, Bytes> = files
        .iter()
        .map(|(path, content)| {
            (
                (*path).to_owned(),
                Bytes::copy_from_slice(content.as_bytes()),
            )
        })
        .collect();
    let mapped = mapped.iter().map(|name| (*name).to_owned()).collect();
    Transform::new(&options, &files, &mapped).expect("a transform")
}

fn refused(options: Value) -> Error {
    let options: Options = serde_json::from_value(options).expect("options");
    match Transform::new(&options, &BTreeMap::new(), &Default::default()) {
        Ok(_) => panic!("was made of {options:?}"),
        Err(error) => error,
    }
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor {
    NamedTensor::new(
        name,
        Tensor::from_elements(shape.to_vec(), values).expect("a tensor"),
    )
}

fn texts(name: &str, values: &[&[u8]]) -> NamedTensor {
    NamedTensor::new(
        name,
        Tensor::from_strings(vec![values.len()], values).expect("a tensor"),
    )
}

fn output<'a>(outputs: &'a [NamedTensor], name: &str) -> &'a Tensor {
    &outputs
        .iter()
        .find(|it| it.name == name)
        .unwrap_or_else(|| panic!("no `{name}`"))
        .tensor
}

fn strings(tensor: &Tensor) -> Vec<String> {
    match tensor.data() {
        Data::Strings(strings) => strings
            .iter()
            .map(|it| String::from_utf8_lossy(it).into_owned())
            .collect(),
        Data::Plain(_) => panic!("numbers"),
    }
}

/// A picture of 4 by 2 pixels: red, green, blue and white above black.
fn picture(format: image::ImageFormat) -> Vec<u8> {
    let mut picture = image::RgbImage::new(4, 2);
    let colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]];
    for (column, colour) in colours.into_iter().enumerate() {
        picture.put_pixel(column as u32, 0, image::Rgb(colour));
    }
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).expect("written");
    bytes.into_inner()
}

#[test]
fn a_picture_becomes_the_numbers_of_its_pixels() {
    let to = |layout: &str| {
        let made = transform(json!({"image": {
            "width": 4, "height": 2, "layout": layout, "scale": 255.0, "mean": [1, 2, 3], "std": [1, 2, 4],
        }}));
        let png = picture(image::ImageFormat::Png);
        let outputs = made.apply(&[texts("image", &[&png])]).expect("pixels");
        let pixels = output(&outputs, "pixels");
        assert!(made.signature().outputs[0].accepts(pixels.shape()));
        (
            pixels.shape().to_vec(),
            pixels.to_vec::<f32>().expect("floats"),
        )
    };
    let (shape, planes) = to("nchw");
    assert_eq!(shape, [1, 3, 2, 4]);
    assert_eq!(planes[..4], [254.0, -1.0, -1.0, 254.0]);
    assert_eq!(planes[8..12], [-1.0, 126.5, -1.0, 126.5]);
    assert_eq!(planes[16..20], [-0.75, -0.75, 63.0, 63.0]);
    let (shape, pixels) = to("nhwc");
    assert_eq!(shape, [1, 2, 4, 3]);
    assert_eq!(pixels[..6], [254.0, -1.0, -0.75, -1.0, 126.5, -0.75]);
    assert_eq!(to("flat").0, [1, 24]);
}

#[test]
fn pictures_of_every_format_and_number_are_taken() {
    let made = transform(json!({"image": {"width": 2, "height": 2, "channels": 1}}));
    let (png, jpeg) = (
        picture(image::ImageFormat::Png),
        picture(image::ImageFormat::Jpeg),
    );
    let webp = picture(image::ImageFormat::WebP);
    let outputs = made
        .apply(&[texts("image", &[&png, &jpeg, &webp])])
        .expect("pixels");
    assert_eq!(output(&outputs, "pixels").shape(), [3, 1, 2, 2]);
    let none = made.apply(&[texts("image", &[])]).expect("no pixels");
    assert_eq!(output(&none, "pixels").shape(), [0, 1, 2, 2]);
}

#[test]
fn a_picture_is_kept_whole_or_cut_as_asked() {
    let to = |fit: &str| {
        let options = json!({"image": {"width": 2, "height": 2, "channels": 1, "fit": fit, "scale": 255.0,
            "fill": 9, "resampling": "box"}});
        let outputs =
            transform(options).apply(&[texts("image", &[&picture(image::ImageFormat::Png)])]);
        output(&outputs.expect("pixels"), "pixels")
            .to_vec::<f32>()
            .expect("floats")
    };
    // 4 by 2 fits into 2 by 1: a row is left to fill.
    assert_eq!(to("contain")[2..], [9.0, 9.0]);
    // The middle two columns: green and blue above black.
    let [green, blue, below, beside] = to("cover")[..] else {
        panic!("four")
    };
    assert!(
        green > blue && blue > 0.0 && below == 0.0 && beside == 0.0,
        "{green} {blue}"
    );
}

#[test]
fn boxes_are_cut_out_of_one_picture() {
    let options =
        json!({"image": {"width": 1, "height": 1, "scale": 255.0, "resampling": "nearest"}});
    let made = with_files(options, &[], &["boxes"]);
    let png = picture(image::ImageFormat::Png);
    let boxes = floats("boxes", &[2, 4], &[0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 3.0, 1.0]);
    let outputs = made
        .apply(&[texts("image", &[&png]), boxes])
        .expect("pixels");
    let pixels = output(&outputs, "pixels");
    assert_eq!(pixels.shape(), [2, 3, 1, 1]);
    assert_eq!(
        pixels.to_vec::<f32>().expect("floats"),
        [255.0, 0.0, 0.0, 0.0, 0.0, 255.0]
    );
    let none = made
        .apply(&[texts("image", &[&png]), floats("boxes", &[0, 4], &[])])
        .expect("none");
    assert_eq!(output(&none, "pixels").shape(), [0, 3, 1, 1]);
    for bad in [
        [9.0, 0.0, 12.0, 1.0],
        [2.0, 0.0, 1.0, 1.0],
        [f32::NAN, 0.0, 1.0, 1.0],
    ] {
        let error = made.apply(&[texts("image", &[&png]), floats("boxes", &[1, 4], &bad)]);
        assert!(
            matches!(
                error,
                Err(Error::Row {
                    input: "boxes",
                    row: 0,
                    ..
                })
            ),
            "{error:?}"
        );
    }
}

#[test]
fn what_is_no_picture_names_its_row() {
    let made = transform(json!({"image": {"width": 2, "height": 2}}));
    let png = picture(image::ImageFormat::Png);
    let truncated = &picture(image::ImageFormat::Jpeg)[..40];
    for bad in [b"hello".as_slice(), b"", truncated, &png[..20]] {
        let error = made.apply(&[texts("image", &[&png, bad])]);
        assert!(
            matches!(
                error,
                Err(Error::Row {
                    input: "image",
                    row: 1,
                    ..
                })
            ),
            "{error:?}"
        );
    }
}

/// A PNG whose head claims another size, with so many bits for each of three channels.
fn claiming(side: u32, bits: u8) -> Vec<u8> {
    let mut png = picture(image::ImageFormat::Png);
    png[16..20].copy_from_slice(&side.to_be_bytes());
    png[20..24].copy_from_slice(&side.to_be_bytes());
    png[24] = bits;
    let sum = checksum(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    png
}

/// Of a part of a PNG.
fn checksum(bytes: &[u8]) -> u32 {
    let of_byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            1 => (sum >> 1) ^ 0xedb8_8320,
            _ => sum >> 1,
        })
    };
    !bytes.iter().fold(u32::MAX, of_byte)
}

#[test]
fn a_small_file_of_a_huge_picture_is_refused_before_it_is_decoded() {
    let made = transform(json!({"image": {"width": 2, "height": 2}}));
    for (side, bits, why) in [
        (16_000, 16, "takes `1536000000` bytes decoded"),
        (16_000, 8, "takes `768000000` bytes decoded"),
        (17_000, 8, "is no picture that can be read"),
    ] {
        let error = made.apply(&[texts("image", &[&claiming(side, bits)])]);
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(why), "{side}: {error}");
    }
}

#[test]
fn a_picture_of_many_bits_counts_as_what_it_takes_decoded() {
    let made = transform(json!({"image": {"width": 2, "height": 2}}));
    let needs = |bits| made.needs_bytes(&[texts("image", &[&claiming(1000, bits)])]);
    // Six bytes a pixel, and as many where it is turned.
    assert!(needs(16) >= 2 * 6_000_000, "{}", needs(16));
    assert!(needs(8) < needs(16));
}

#[test]
fn options_that_make_no_picture_are_refused() {
    for (options, option) in [
        (json!({"width": 0, "height": 2}), "width"),
        (json!({"width": 2, "height": 70000}), "width"),
        (json!({"width": 2, "height": 2, "channels": 2}), "channels"),
        (json!({"width": 2, "height": 2, "mean": [1.0]}), "mean"),
        (
            json!({"width": 2, "height": 2, "std": [1.0, 0.0, 1.0]}),
            "std",
        ),
    ] {
        let error = refused(json!({"image": options}));
        assert!(
            matches!(error, Error::Option { option: it, .. } if it == option),
            "{error:?}"
        );
    }
}

/// A tokenizer of whole words.
const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
  {"id":0,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
  {"id":2,"content":"[CLS]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
  "normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},
  "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},
    {"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
    "special_tokens":{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]}}},
  "decoder":null,"model":{"type":"WordLevel","vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"good":3,"film":4},"unk_token":"[UNK]"}}"#;

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
fn rows_of_texts_that_are_out_of_order_are_no_texts() {
    let pool = with_files(json!({"pool": {}}), &[], &["text_index"]);
    for (index, expected) in [
        ([1i64, 1], "has 1 in row `0`"),
        ([0, 2], "has 2 in row `1`"),
    ] {
        let index = Tensor::from_elements(vec![2], &index).expect("numbers");
        let mask = Tensor::from_elements(vec![2, 1], &[1i64, 1]).expect("numbers");
        let refused = pool.apply(&[
            floats("hidden", &[2, 1, 1], &[1.0, 2.0]),
            NamedTensor::new("attention_mask", mask),
            NamedTensor::new("text_index", index),
        ]);
        let error = refused.expect_err("no texts").to_string();
        assert!(error.contains(expected), "{error}");
    }
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

#[test]
fn tokens_are_pooled_without_those_that_the_mask_leaves_out() {
    let hidden = floats("hidden", &[1, 3, 2], &[3.0, 4.0, 1.0, 0.0, 9.0, 9.0]);
    let mask = Tensor::from_elements(vec![1, 3], &[1i64, 1, 0]).expect("a mask");
    let inputs = [hidden, NamedTensor::new("attention_mask", mask)];
    let to = |options: Value| {
        let outputs = transform(json!({"pool": options}))
            .apply(&inputs)
            .expect("pooled");
        output(&outputs, "embedding")
            .to_vec::<f32>()
            .expect("floats")
    };
    assert_eq!(to(json!({})), [2.0, 2.0]);
    assert_eq!(to(json!({"mode": "max"})), [3.0, 4.0]);
    assert_eq!(to(json!({"mode": "first", "normalize": true})), [0.6, 0.8]);
}

#[test]
fn vectors_of_large_and_of_small_numbers_have_the_length_one() {
    for scale in [1e38f32, 3e19, 1.0, 1e-30] {
        let vectors = floats("vectors", &[2, 2], &[3.0 * scale, 0.0, scale, -scale]);
        let outputs = transform(json!({"normalize": {}}))
            .apply(&[vectors])
            .expect("vectors");
        let made = output(&outputs, "vectors").to_vec::<f32>().expect("floats");
        let half = 0.5f32.sqrt();
        for (made, wanted) in made.iter().zip([1.0, 0.0, half, -half]) {
            assert!((made - wanted).abs() < 1e-6, "{scale}: {made}, {wanted}");
        }
        let hidden = floats(
            "hidden",
            &[1, 2, 2],
            &[3.0 * scale, scale, 3.0 * scale, scale],
        );
        let mask = Tensor::from_elements(vec![1, 2], &[1i64, 1]).expect("a mask");
        let outputs = transform(json!({"pool": {}}))
            .apply(&[hidden, NamedTensor::new("attention_mask", mask)])
            .expect("pooled");
        let made = output(&outputs, "embedding")
            .to_vec::<f32>()
            .expect("floats");
        for (made, wanted) in made.iter().zip([3.0f32, 1.0]) {
            assert!((made / scale - wanted).abs() < 1e-6, "{scale}: {made}");
        }
    }
}

#[test]
fn scores_become_probabilities_and_the_likeliest_classes() {
    let scores = floats(
        "scores",
        &[2, 3],
        &[0.0, 0.0, 0.0, 1000.0, 0.0, f32::NEG_INFINITY],
    );
    let outputs = transform(json!({"softmax": {}}))
        .apply(std::slice::from_ref(&scores))
        .expect("softmax");
    let probabilities = output(&outputs, "probabilities")
        .to_vec::<f32>()
        .expect("floats");
    assert_eq!(probabilities[3..], [1.0, 0.0, 0.0]);
    assert!(
        probabilities[..3]
            .iter()
            .all(|it| (it - 1.0 / 3.0).abs() < 1e-6)
    );
    let top = transform(json!({"top_k": {"k": 2, "labels": ["ant", "bee", "cat"]}}));
    let outputs = top.apply(&[scores]).expect("top");
    assert_eq!(
        strings(output(&outputs, "labels")),
        ["ant", "bee", "ant", "bee"]
    );
    let unnamed = with_files(
        json!({"top_k": {"labels_file": "l.txt"}}),
        &[("l.txt", "x\r\ny\n")],
        &[],
    );
    let outputs = unnamed
        .apply(&[floats("scores", &[1, 2], &[f32::NAN, 0.1])])
        .expect("top");
    assert_eq!(strings(output(&outputs, "labels")), ["y"]);
    let error = top.apply(&[floats("scores", &[1, 2], &[0.1, 0.2])]);
    assert!(
        matches!(
            error,
            Err(Error::Input {
                input: "scores",
                ..
            })
        ),
        "{error:?}"
    );
}

#[test]
fn what_was_read_step_by_step_is_one_text() {
    let file = &[("l.txt", "-\na\n\u{e9}\n \n")];
    let ctc = with_files(json!({"ctc": {"labels_file": "l.txt"}}), file, &[]);
    // Classes of the steps of two rows: repeats are one, but for a blank between them.
    let steps = [1, 1, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0];
    let mut scores = vec![0.0; steps.len() * 4];
    for (at, class) in steps.into_iter().enumerate() {
        scores[at * 4 + class] = if at == 0 { 0.6 } else { 0.8 };
    }
    let outputs = ctc
        .apply(&[floats("scores", &[2, 6, 4], &scores)])
        .expect("ctc");
    assert_eq!(strings(output(&outputs, "text")), ["aa\u{e9} ", ""]);
    let scores = output(&outputs, "scores").to_vec::<f32>().expect("floats");
    assert!(
        (scores[0] - 0.75).abs() < 1e-6 && scores[1] == 0.0,
        "{scores:?}"
    );
    let none = ctc
        .apply(&[floats("scores", &[0, 6, 4], &[])])
        .expect("ctc");
    assert!(strings(output(&none, "text")).is_empty());
    let error = ctc.apply(&[floats("scores", &[1, 1, 2], &[0.1, 0.2])]);
    assert!(error.is_err(), "two classes, and names of four");
}

#[test]
fn a_temperature_that_makes_no_probabilities_is_refused() {
    for temperature in [0.0, -1.0, 1e39] {
        let error = refused(json!({"softmax": {"temperature": temperature}}));
        assert!(
            matches!(
                error,
                Error::Option {
                    option: "temperature",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}

/// What would be made is too large, and is refused before it is made.
fn assert_too_large(of: &Transform, inputs: &[NamedTensor], wanted: &str) {
    assert!(of.needs_bytes(inputs) > MOST_BYTES, "{wanted}");
    let error = of.apply(inputs);
    assert!(
        matches!(error, Err(Error::TooLarge { what, .. }) if what == wanted),
        "{error:?}"
    );
}

#[test]
fn inputs_without_elements_make_nothing_large() {
    let pool = transform(json!({"pool": {}}));
    for (rows, components) in [(1, 1 << 40), (1 << 40, 1)] {
        let mask = Tensor::from_elements(vec![rows, 0], &[0i64; 0]).expect("a mask");
        let tokens = [
            floats("hidden", &[rows, 0, components], &[]),
            NamedTensor::new("attention_mask", mask),
        ];
        assert!(
            !pool.is_quick(&tokens),
            "nobody waits for it on this thread"
        );
        assert_too_large(&pool, &tokens, "embedding");
    }
    let file = &[("l.txt", "-\na\n")];
    let ctc = with_files(json!({"ctc": {"labels_file": "l.txt"}}), file, &[]);
    assert_too_large(&ctc, &[floats("scores", &[1 << 40, 0, 2], &[])], "text");
}

#[test]
fn names_that_are_long_are_not_repeated_without_end() {
    let long = "x".repeat(1 << 20);
    let top = transform(json!({"top_k": {"labels": [long]}}));
    let rows = |rows: usize| [floats("scores", &[rows, 1], &vec![0.5; rows])];
    assert_too_large(&top, &rows(1000), "labels");
    let outputs = top.apply(&rows(2)).expect("two names");
    assert_eq!(
        strings(output(&outputs, "labels")),
        [long.as_str(), long.as_str()]
    );
    let file = format!("-\n{long}\n");
    let options = json!({"ctc": {"labels_file": "l.txt"}});
    let ctc = with_files(options, &[("l.txt", file.as_str())], &[]);
    let steps = floats("scores", &[1, 1000, 2], &[0.5; 2000]);
    assert_too_large(&ctc, &[steps], "text");
}

#[test]
fn covered_boxes_are_left_out() {
    let boxes = floats(
        "boxes",
        &[4, 4],
        &[
            0.0, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0, 20.0, 0.0, 30.0, 10.0, 0.0, 0.0, 9.0, 9.0,
        ],
    );
    let scores = floats("scores", &[4, 2], &[0.8, 0.0, 0.9, 0.0, 0.3, 0.0, 0.0, 0.7]);
    let outputs = transform(json!({"nms": {}}))
        .apply(&[boxes.clone(), scores])
        .expect("nms");
    assert_eq!(
        output(&outputs, "scores").to_vec::<f32>().expect("floats"),
        [0.9, 0.7, 0.3]
    );
    assert_eq!(
        output(&outputs, "classes").to_vec::<i64>().expect("ids"),
        [0, 1, 0]
    );
    let with_nan = [f32::NAN, 0.6, f32::NAN, f32::NAN, 0.7, -f32::NAN, 0.0, 0.0];
    let outputs = transform(json!({"nms": {}}))
        .apply(&[boxes.clone(), floats("scores", &[4, 2], &with_nan)])
        .expect("nms");
    assert_eq!(
        output(&outputs, "scores").to_vec::<f32>().expect("floats"),
        [0.7, 0.6]
    );
    assert_eq!(
        output(&outputs, "classes").to_vec::<i64>().expect("ids"),
        [0, 1]
    );
    let none = transform(json!({"nms": {"min_score": 2.0}}));
    let outputs = none
        .apply(&[boxes, floats("scores", &[4, 1], &[0.1; 4])])
        .expect("none");
    assert_eq!(output(&outputs, "boxes").shape(), [0, 4]);
    let far: Vec<f32> = [0.0f32, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0]
        .map(|it| it * 1e30)
        .to_vec();
    let scores = floats("scores", &[2, 1], &[0.8, 0.9]);
    let outputs = transform(json!({"nms": {}}))
        .apply(&[floats("boxes", &[2, 4], &far), scores])
        .expect("nms");
    let kept = output(&outputs, "scores").to_vec::<f32>().expect("floats");
    assert_eq!(kept, [0.9], "areas may be large");
    let error = refused(json!({"nms": {"iou": 1.5}}));
    assert!(
        matches!(error, Error::Option { option: "iou", .. }),
        "{error:?}"
    );
}
