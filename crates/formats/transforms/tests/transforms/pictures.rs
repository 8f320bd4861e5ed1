//! Pictures: decoded, brought to one size, cut.

use std::io::Cursor;

use serde_json::json;
use sextant_transforms::Error;

use crate::{floats, output, refused, texts, transform, with_files};

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

/// Values by Pillow (`convert("L")`) of the same pixels.
#[test]
fn brightness_is_that_of_pillow() {
    let made =
        transform(json!({"image": {"width": 4, "height": 2, "channels": 1, "scale": 255.0}}));
    let outputs = made.apply(&[texts("image", &[&picture(image::ImageFormat::Png)])]);
    let pixels = output(&outputs.expect("pixels"), "pixels").to_vec::<f32>();
    let expected = [76.0, 150.0, 29.0, 255.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(pixels.expect("floats"), expected);
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
