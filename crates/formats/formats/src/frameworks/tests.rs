use std::{fs, io::Cursor, path::PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A file that the library itself has written: `tests/saved/make.py`.
fn saved(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.join("tests/saved").join(name)
}

/// A folder with files of these names and contents.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("is created");
        fs::write(path, content).expect("is written");
    }
    folder
}

#[test]
fn files_are_told_by_what_they_hold() {
    for (name, holds) in [
        ("module.pt", FrameworkFormat::TorchModule),
        ("module-legacy.pt", FrameworkFormat::TorchModule),
        ("weights.pt", FrameworkFormat::Weights(Library::PyTorch)),
        (
            "weights-legacy.pth",
            FrameworkFormat::Weights(Library::PyTorch),
        ),
        ("checkpoint.pt", FrameworkFormat::Weights(Library::PyTorch)),
        ("script.pt", FrameworkFormat::TorchScript),
        ("program.pt2", FrameworkFormat::ExportedProgram),
        ("dense.keras", FrameworkFormat::Keras),
        ("dense.h5", FrameworkFormat::Hdf5),
        ("dense.weights.h5", FrameworkFormat::Weights(Library::Keras)),
        ("saved_model", FrameworkFormat::SavedModel),
    ] {
        assert_eq!(of(&saved(name)).expect("is read"), Some(holds), "{name}");
    }
}

#[test]
fn contents_count_more_than_names() {
    let folder = folder(&[]);
    for (name, called, holds) in [
        ("module.pt", "model.pkl", Some(FrameworkFormat::TorchModule)),
        ("script.pt", "model.bin", Some(FrameworkFormat::TorchScript)),
        ("dense.h5", "model.keras", Some(FrameworkFormat::Hdf5)),
        ("make.py", "model.joblib", Some(FrameworkFormat::Pickle)),
        ("make.py", "model.onnx", None),
    ] {
        let path = folder.path().join(called);
        fs::copy(saved(name), &path).expect("is copied");
        assert_eq!(of(&path).expect("is read"), holds, "{called}");
    }
}

#[test]
fn a_folder_of_hugging_face_says_its_class_and_what_it_would_run() {
    let config = ("config.json", r#"{"architectures": ["BertModel"]}"#);
    let own = (
        "config.json",
        r#"{"architectures": ["Own"], "auto_map": {"AutoModel": "own.Own"}}"#,
    );
    let of = |files: &[(&str, &str)]| match of(folder(files).path()).expect("is read") {
        Some(FrameworkFormat::HuggingFace(found)) => Some(found),
        other => {
            assert_eq!(other, None);
            None
        }
    };
    let safe = of(&[config, ("model.safetensors", ""), ("tokenizer.json", "{}")]).expect("a model");
    assert_eq!(safe.architecture.as_deref(), Some("BertModel"));
    assert!(safe.has_tokenizer && !safe.has_pickles && !safe.has_code);
    let pickled = of(&[config, ("pytorch_model.bin", "")]).expect("a model");
    assert!(pickled.has_pickles && !pickled.has_tokenizer);
    let both = [own, ("pytorch_model.bin", ""), ("model.safetensors", "")];
    let both = of(&both).expect("a model");
    assert!(both.has_code && !both.has_pickles);
    // One that was exported already, and one without weights.
    assert_eq!(
        of(&[config, ("model.safetensors", ""), ("onnx/model.onnx", "")]),
        None
    );
    assert_eq!(of(&[config]), None);
}

#[test]
fn a_pickle_of_other_classes_is_more_than_weights() {
    for (name, holds) in [
        ("posix system", FrameworkFormat::TorchModule),
        (
            "torch.nn.modules.linear Linear",
            FrameworkFormat::TorchModule,
        ),
        (pickle::UNKNOWN, FrameworkFormat::TorchModule),
        (
            "torch._utils _rebuild_tensor_v2",
            FrameworkFormat::Weights(Library::PyTorch),
        ),
        (
            "numpy.core.multiarray scalar",
            FrameworkFormat::Weights(Library::PyTorch),
        ),
    ] {
        assert_eq!(of_names(Some(vec![name.to_owned()])), holds, "{name}");
    }
    assert_eq!(of_names(None), FrameworkFormat::TorchModule);
}

proptest! {
    /// A damaged file causes no panic, whatever it says about itself.
    #[test]
    fn damaged_files_are_read_without_a_panic(
        name in prop::sample::select(vec!["module.pt", "weights-legacy.pth", "program.pt2"]),
        end in 0.0..1.0_f64,
        at in 0.0..1.0_f64,
        byte: u8,
    ) {
        let mut bytes = fs::read(saved(name)).expect("is read");
        let place = |share: f64, of: usize| (share * of as f64) as usize;
        let at = place(at, bytes.len());
        bytes[at] = byte;
        bytes.truncate(place(end, bytes.len()) + 1);
        let found = of_file(name, &mut Cursor::new(bytes));
        prop_assert!(found.is_ok());
    }
}
