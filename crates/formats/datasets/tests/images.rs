//! Folders of images become archives of arrays.

use std::{fs, io::Cursor, path::Path};

use bytes::Bytes;
use image::{ExtendedColorType, GrayImage, ImageEncoder, Rgb, RgbImage, codecs::png::PngEncoder};
use sextant_datasets::{
    Error,
    images::{Filter, Folder, Preprocessing, Resize},
};
use sextant_formats::{npy, zip::Archive};
use sextant_types::{Data, DataType, Tensor, TensorSpec};

fn input(data_type: DataType, shape: [Option<u64>; 4]) -> TensorSpec {
    TensorSpec {
        name: "pixels".to_owned(),
        data_type,
        shape: shape.to_vec(),
    }
}

/// Two columns of pixels, one red and one blue, `height` high.
fn halves(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, _| match x < width / 2 {
        true => Rgb([255, 0, 0]),
        false => Rgb([0, 0, 255]),
    })
}

fn arrays(
    folder: &Folder,
    input: &TensorSpec,
    how: &Preprocessing,
) -> Result<(Tensor, Option<Tensor>), Error> {
    let mut out = Cursor::new(Vec::new());
    let mut done = 0;
    folder.write(input, how, &mut out, || done += 1)?;
    assert_eq!(done, folder.len());
    let archive = Archive::open(Bytes::from(out.into_inner())).expect("an archive");
    let array = |name: &str| {
        let entry = archive.entries().iter().find(|entry| entry.name == name)?;
        let file = archive
            .read(entry, 1 << 20)
            .expect("an array whose checksum is right");
        Some(npy::read(&file).expect("an array"))
    };
    Ok((array("pixels.npy").expect("the input"), array("labels.npy")))
}

fn save(image: &RgbImage, path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    image.save(path).expect("saved");
}

#[test]
fn folders_are_classes_and_planes_are_normalised() {
    let root = tempfile::tempdir().expect("a folder");
    save(&halves(4, 2), &root.path().join("cat/a.png"));
    save(&halves(2, 2), &root.path().join("ant/b.png"));
    fs::write(root.path().join("ant/notes.txt"), "no image").expect("written");
    let folder = Folder::open(root.path()).expect("it is read");
    assert_eq!(folder.classes(), ["ant", "cat"]);
    let how = Preprocessing {
        mean: vec![0.5, 0.0, 0.25],
        deviation: vec![0.5, 1.0, 0.25],
        ..Preprocessing::default()
    };
    let spec = input(DataType::Fp32, [None, Some(3), Some(2), Some(2)]);
    let (pixels, labels) = arrays(&folder, &spec, &how).expect("they fit");
    assert_eq!(pixels.shape(), [2, 3, 2, 2]);
    // Both show one red and one blue column: the wider one is cut to its middle.
    let one = [1., -1., 1., -1., 0., 0., 0., 0., -1., 3., -1., 3.];
    assert_eq!(pixels.to_vec::<f32>().expect("floats"), [one, one].concat());
    let labels = labels.expect("labels");
    let Data::Strings(names) = labels.data() else {
        panic!("names are text");
    };
    assert!(names.iter().eq(["ant", "cat"].map(str::as_bytes)));
}

#[test]
fn a_list_names_files_and_numbers_and_bytes_stay_bytes() {
    let root = tempfile::tempdir().expect("a folder");
    let grey = GrayImage::from_fn(2, 4, |x, y| image::Luma([(10 * y + x) as u8]));
    grey.save(root.path().join("one.png")).expect("saved");
    fs::write(
        root.path().join("labels.csv"),
        "label,file\n7,one.png\n3,one.png\n",
    )
    .expect("written");
    let folder = Folder::open(root.path()).expect("it is read");
    let spec = input(DataType::Uint8, [None, Some(4), Some(2), Some(1)]);
    let (pixels, labels) = arrays(&folder, &spec, &Preprocessing::default()).expect("they fit");
    assert_eq!(pixels.shape(), [2, 4, 2, 1]);
    let one = [0u8, 1, 10, 11, 20, 21, 30, 31];
    assert_eq!(pixels.to_vec::<u8>().expect("bytes"), [one, one].concat());
    let labels = labels.expect("labels");
    assert_eq!(labels.to_vec::<i64>().expect("integers"), [7, 3]);
}

/// A TIFF header with one entry, the orientation: turned to the left, as a camera stores what it saw upright.
const TURNED: [u8; 26] = [
    b'I', b'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn images_are_turned_as_their_cameras_say() {
    let root = tempfile::tempdir().expect("a folder");
    let mut file = Vec::new();
    let mut encoder = PngEncoder::new(&mut file);
    encoder.set_exif_metadata(TURNED.to_vec()).expect("held");
    let stored = halves(2, 2);
    encoder
        .write_image(stored.as_raw(), 2, 2, ExtendedColorType::Rgb8)
        .expect("written");
    fs::write(root.path().join("a.png"), file).expect("written");
    let folder = Folder::open(root.path()).expect("it is read");
    let spec = input(DataType::Uint8, [None, Some(2), Some(2), Some(3)]);
    let (pixels, _) = arrays(&folder, &spec, &Preprocessing::default()).expect("they fit");
    // The red column at the left comes to the top.
    let upright = [[255u8, 0, 0], [255, 0, 0], [0, 0, 255], [0, 0, 255]];
    assert_eq!(pixels.to_vec::<u8>().expect("bytes"), upright.concat());
}

/// Values by Pillow (`convert("L")`) of the same pixels.
#[test]
fn brightness_is_that_of_pillow() {
    let root = tempfile::tempdir().expect("a folder");
    save(&halves(2, 1), &root.path().join("a.png"));
    let folder = Folder::open(root.path()).expect("it is read");
    let spec = input(DataType::Uint8, [None, Some(1), Some(1), Some(2)]);
    let (pixels, _) = arrays(&folder, &spec, &Preprocessing::default()).expect("they fit");
    assert_eq!(pixels.to_vec::<u8>().expect("bytes"), [76, 29]);
}

#[test]
fn images_without_labels_are_taken_evenly() {
    let root = tempfile::tempdir().expect("a folder");
    for at in 0..10u8 {
        let image = RgbImage::from_pixel(1, 1, Rgb([at; 3]));
        save(&image, &root.path().join(format!("{at}.png")));
    }
    let mut folder = Folder::open(root.path()).expect("it is read");
    folder.keep(4);
    let spec = input(DataType::Uint8, [None, Some(1), Some(1), Some(3)]);
    let (pixels, labels) = arrays(&folder, &spec, &Preprocessing::default()).expect("they fit");
    let red: Vec<u8> = pixels
        .to_vec::<u8>()
        .expect("bytes")
        .into_iter()
        .step_by(3)
        .collect();
    assert_eq!(red, [0, 2, 5, 7]);
    assert!(labels.is_none());
}

#[test]
fn the_shorter_side_is_resized_and_the_middle_cut_out() {
    let root = tempfile::tempdir().expect("a folder");
    save(&halves(40, 20), &root.path().join("wide.png"));
    let folder = Folder::open(root.path()).expect("it is read");
    let spec = input(DataType::Uint8, [None, Some(2), Some(4), Some(3)]);
    let with = |resize| Preprocessing {
        resize,
        filter: Filter::Nearest,
        ..Preprocessing::default()
    };
    let blue = |how: &Preprocessing| {
        let (pixels, _) = arrays(&folder, &spec, how).expect("they fit");
        let all = pixels.to_vec::<u8>().expect("bytes");
        all.into_iter()
            .skip(2)
            .step_by(3)
            .take(4)
            .collect::<Vec<u8>>()
    };
    for resize in [
        Resize::Cover,
        Resize::Exact,
        Resize::ShorterSide(10),
        Resize::ShorterSide(1),
    ] {
        assert_eq!(blue(&with(resize)), [0, 0, 255, 255], "{resize:?}");
    }
}

#[test]
fn what_hugging_face_says_is_done() {
    let config = br#"{"do_resize": true, "size": {"shortest_edge": 256}, "resample": 3, "do_center_crop": true,
        "crop_size": {"height": 224, "width": 192}, "do_rescale": true, "rescale_factor": 0.5,
        "do_normalize": true, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]}"#;
    let expected = Preprocessing {
        size: Some((224, 192)),
        resize: Resize::ShorterSide(256),
        filter: Filter::Bicubic,
        scale: 0.5,
        mean: vec![0.1, 0.2, 0.3],
        deviation: vec![1.0, 2.0, 3.0],
    };
    assert_eq!(Preprocessing::read(config).expect("known"), expected);

    let config =
        br#"{"do_resize": true, "size": {"height": 32, "width": 48}, "do_normalize": false}"#;
    let expected = Preprocessing {
        size: Some((32, 48)),
        resize: Resize::Exact,
        ..Preprocessing::default()
    };
    assert_eq!(Preprocessing::read(config).expect("known"), expected);

    // ConvNeXt.
    let config = br#"{"do_resize": true, "size": {"shortest_edge": 224}, "crop_pct": 0.875}"#;
    let read = Preprocessing::read(config).expect("known");
    assert_eq!(
        (read.size, read.resize),
        (Some((224, 224)), Resize::ShorterSide(256))
    );

    // A square of whole images: ViT, Swin and BEiT as their files were first written, and ConvNeXt from 384 pixels on.
    for (config, side) in [
        (r#"{"do_resize": true, "size": 224}"#, 224),
        (
            r#"{"do_resize": true, "size": 224, "do_center_crop": false, "crop_size": 224}"#,
            224,
        ),
        (r#"{"do_resize": true, "size": 384, "crop_pct": 1.0}"#, 384),
    ] {
        let read = Preprocessing::read(config.as_bytes()).expect("known");
        assert_eq!(
            (read.size, read.resize),
            (Some((side, side)), Resize::Exact)
        );
    }
    // CLIP: the shorter side of what is cut.
    let config = br#"{"do_resize": true, "size": 224, "do_center_crop": true, "crop_size": 224}"#;
    let read = Preprocessing::read(config).expect("known");
    assert_eq!(
        (read.size, read.resize),
        (Some((224, 224)), Resize::ShorterSide(224))
    );

    // RT-DETR.
    let config = br#"{"do_resize": true, "size": {"height": 640, "width": 640}, "do_pad": false}"#;
    let read = Preprocessing::read(config).expect("known");
    assert_eq!((read.size, read.resize), (Some((640, 640)), Resize::Exact));

    for (strange, why) in [
        (r#""size": {"longest_edge": 800}"#, "`size`: say"),
        // DETR, as its files are and were written, and ViLT.
        (
            r#""size": {"shortest_edge": 800, "longest_edge": 1333}"#,
            "its ratio",
        ),
        (r#""size": 800, "max_size": 1333"#, "its ratio"),
        (
            r#""size": {"shortest_edge": 384}, "do_pad": true"#,
            "its ratio",
        ),
    ] {
        let config = format!(r#"{{"do_resize": true, {strange}}}"#);
        let error = Preprocessing::read(config.as_bytes())
            .expect_err("unknown")
            .to_string();
        assert!(error.contains("--image-size"), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_does_not_fit_says_what_to_do() {
    let root = tempfile::tempdir().expect("a folder");
    let none = Folder::open(root.path())
        .expect_err("no images")
        .to_string();
    assert!(none.contains("labels.csv"), "{none}");

    save(&halves(2, 2), &root.path().join("a.png"));
    let folder = Folder::open(root.path()).expect("it is read");
    let why = |spec: &TensorSpec, how: &Preprocessing| {
        arrays(&folder, spec, how)
            .expect_err("it does not fit")
            .to_string()
    };
    let plain = Preprocessing::default();
    let any = input(DataType::Fp32, [None, Some(3), None, None]);
    assert!(why(&any, &plain).contains("--image-size"));
    let fixed = input(DataType::Fp32, [None, Some(3), Some(8), Some(8)]);
    let sized = Preprocessing {
        size: Some((4, 4)),
        ..plain.clone()
    };
    assert!(why(&fixed, &sized).contains("leave the size out"));
    let normalised = Preprocessing {
        mean: vec![0.5],
        ..plain.clone()
    };
    assert!(
        why(
            &input(DataType::Uint8, [None, Some(3), Some(8), Some(8)]),
            &normalised
        )
        .contains("bytes")
    );
    assert!(
        why(
            &input(DataType::Int64, [None, Some(3), Some(8), Some(8)]),
            &plain
        )
        .contains("floats or UINT8")
    );
    assert!(
        why(
            &input(DataType::Fp32, [None, Some(7), Some(8), Some(8)]),
            &plain
        )
        .contains("1 or 3 channels")
    );

    for (mean, deviation) in [
        (vec![0.5, 0.5], vec![1.0]),
        (vec![0.5], vec![1.0, 0.0, 1.0]),
    ] {
        let how = Preprocessing {
            mean,
            deviation,
            ..plain.clone()
        };
        assert!(why(&fixed, &how).contains("for each of them"));
    }
    let nothing = br#"{"do_normalize": true}"#;
    let error = Preprocessing::read(nothing)
        .expect_err("no mean")
        .to_string();
    assert!(error.contains("image_mean"), "{error}");

    fs::write(root.path().join("b.jpg"), b"\xff\xd8\xff no more").expect("written");
    let folder = Folder::open(root.path()).expect("it is read");
    let mut out = Cursor::new(Vec::new());
    let broken = folder.write(&fixed, &plain, &mut out, || ());
    assert!(matches!(broken, Err(Error::Image { path, .. }) if path.ends_with("b.jpg")));

    save(&halves(2, 2), &root.path().join("dog/c.png"));
    let mixed = Folder::open(root.path())
        .expect_err("beside folders")
        .to_string();
    assert!(mixed.contains("move it into one"), "{mixed}");

    fs::write(root.path().join("labels.csv"), "picture,what\na.png,1\n").expect("written");
    let list = Folder::open(root.path())
        .expect_err("other columns")
        .to_string();
    assert!(list.contains("`file` and `label`"), "{list}");
}
