//! The example's data, and a service with its models.

use std::{
    fs,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::UNIX_EPOCH,
};

use npyz::{WriterBuilder, npz::NpzArchive};
use parquet::{
    data_type::{FloatType, Int64Type},
    file::writer::{SerializedFileWriter, SerializedRowGroupWriter},
    schema::parser::parse_message_type,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{Api, Settings, TestCluster, Upload, binary, steps, until};

/// Pixels of one image.
pub const PIXELS: usize = 64;

/// Models of the service that [`service`] starts, the cheapest first.
pub const MODELS: [&str; 3] = ["logistic", "mlp", "cnn-small"];

/// Images with their labels.
#[derive(Debug)]
pub struct Images {
    pixels: Vec<f32>,
    /// The digit on each image.
    pub labels: Vec<i64>,
}

impl Images {
    /// The images of `examples/digits/{name}.npz`.
    pub fn load(name: &str) -> Self {
        let file = File::open(file(&format!("{name}.npz"))).expect("the example is there");
        let mut archive = NpzArchive::new(BufReader::new(file)).expect("an archive");
        let pixels = archive
            .by_name("pixels")
            .expect("readable")
            .expect("an array `pixels`");
        let pixels = pixels.into_vec().expect("32-bit floats");
        let labels = archive
            .by_name("labels")
            .expect("readable")
            .expect("an array `labels`");
        let labels = labels.into_vec().expect("64-bit integers");
        Self { pixels, labels }
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Pixels of one image.
    pub fn pixels(&self, index: usize) -> &[f32] {
        &self.pixels[index * PIXELS..(index + 1) * PIXELS]
    }

    /// One image as the input of a query.
    pub fn input(&self, index: usize) -> Value {
        input(&json!(self.pixels(index)))
    }
}

/// The input of a query with one image.
pub fn input(data: &Value) -> Value {
    json!([{"name": "pixels", "shape": [1, PIXELS], "datatype": "FP32", "data": data}])
}

/// A file of the example.
pub fn file(name: &str) -> PathBuf {
    binary::root().join("examples/digits").join(name)
}

/// The bytes of a file of the example.
pub fn bytes(name: &str) -> Vec<u8> {
    fs::read(file(name)).expect("the example is there")
}

/// Writes an array as `numpy.save` does.
pub fn write_npy(path: &Path, shape: &[u64], values: &[f32]) {
    let file = File::create(path).expect("a file");
    let options = npyz::WriteOptions::new().default_dtype().shape(shape);
    let mut writer = options.writer(file).begin_nd().expect("a header");
    writer.extend(values.iter().copied()).expect("values");
    writer.finish().expect("a complete file");
}

/// Writes one of the example's sets as a data frame: a column for each pixel, and `label`.
pub fn write_parquet(path: &Path, set: &str) {
    let images = Images::load(set);
    let pixels: String = (0..PIXELS)
        .map(|at| format!("required float p{at}; "))
        .collect();
    let schema = format!("message frame {{ {pixels} required int64 label; }}");
    let schema = Arc::new(parse_message_type(&schema).expect("a schema"));
    let file = File::create(path).expect("a file");
    let writer = SerializedFileWriter::new(file, schema, Arc::default());
    let mut writer = writer.expect("the file is begun");
    let mut group = writer.next_row_group().expect("a group of rows");
    for at in 0..PIXELS {
        let pixels = (0..images.len()).map(|index| images.pixels(index)[at]);
        write_column::<FloatType>(&mut group, &pixels.collect::<Vec<_>>());
    }
    write_column::<Int64Type>(&mut group, &images.labels);
    group.close().expect("the group is complete");
    writer.close().expect("the file is complete");
}

fn write_column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) {
    let mut column = group.next_column().expect("no error").expect("a column");
    let written = column.typed::<T>().write_batch(values, None, None);
    written.expect("the values are written");
    column.close().expect("the column is complete");
}

/// The upload form of one of the example's models.
pub fn upload<'a>(application: &'a str, name: &'a str, model: &str) -> Upload<'a> {
    Upload {
        application,
        name,
        model: bytes(&format!("{model}.onnx")),
        validation: bytes("validation.npz"),
        validation_name: "validation.npz",
    }
}

/// The digit with the largest score.
pub fn digit(scores: &Value) -> usize {
    let scores = scores.as_array().expect("a list of scores");
    let score = |value: &Value| value.as_f64().expect("a score is a number");
    let best = scores
        .iter()
        .enumerate()
        .max_by(|a, b| score(a.1).total_cmp(&score(b.1)));
    best.expect("there are scores").0
}

/// A service with the application `digits` and [`MODELS`], shared by the concurrent tests of one process.
pub async fn shared() -> Arc<TestCluster> {
    static SHARED: Mutex<Weak<TestCluster>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(service(Settings::default()).await);
    *shared = Arc::downgrade(&started);
    started
}

/// Waits until every variant on the frontier serves. From then on the cheapest variant that meets a target answers, not
/// the one that was loaded first.
pub async fn warm(api: &Api) {
    until("the frontier serves", || async {
        let answer = api.get("/v1/applications/digits/variants").await.json(200);
        let variants = answer["variants"].as_array().expect("a list");
        let serves = |variant: &Value| {
            let instances = variant["instances"].as_array().expect("a list");
            instances.iter().any(steps::is_serving)
        };
        let mut frontier = variants
            .iter()
            .filter(|variant| variant["dominated_by"].is_null());
        frontier.all(serves).then_some(())
    })
    .await;
}

/// A separate service with these settings, on which the application `digits` has the model `mlp`.
pub async fn with_mlp(set: &[&str]) -> TestCluster {
    let cluster = TestCluster::start(Settings {
        set: set.iter().map(|setting| (*setting).to_owned()).collect(),
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("digits").await;
    let job = api.register(upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    cluster
}

/// A separate service with the application `digits` and [`MODELS`].
pub async fn service(settings: Settings) -> TestCluster {
    TestCluster::start_with(&template().await, settings)
}

/// A data folder with the registered models. The first test that needs it makes it, once for each build of the binary,
/// because a registration takes longer than most tests.
async fn template() -> PathBuf {
    let scratch = binary::scratch();
    let lock = File::create(scratch.join("template.lock")).expect("the lock can be created");
    lock.lock().expect("the lock can be had");
    let built = fs::metadata(binary::sextant()).expect("the binary is there");
    let age = built
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let key = format!("{}-{}", built.len(), age.map_or(0, |age| age.as_nanos()));
    let template = scratch.join("template");
    if fs::read_to_string(template.join("key")).ok().as_deref() != Some(&key) {
        let data = register_all().await;
        fs::remove_dir_all(&template).ok();
        fs::create_dir_all(&template).expect("the folder can be created");
        let data = data.into_data(&template.join("data"));
        fs::write(template.join("key"), key).expect("the key can be written");
        return data;
    }
    template.join("data")
}

async fn register_all() -> TestCluster {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("digits").await;
    for model in MODELS {
        let job = register(&api, model).await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    cluster
}

async fn register(api: &Api, model: &str) -> Value {
    api.register(upload("digits", model, model)).await
}
