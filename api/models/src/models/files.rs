//! The files of a model while they are stored in the artefact store.
//!
//! Files are streamed: memory use does not grow with their size. Obvious errors are refused here,
//! as early as possible; the registration finds out whether the file is a model.

use std::collections::BTreeMap;

use axum::extract::{
    Multipart, Request,
    multipart::{Field, MultipartError},
};
use futures::StreamExt;
use sextant_objects::{ObjectPath, PutBlob};
use sextant_registry::{DataFile, KeyScope, METRIC_FILE, NewModel, Registrant};
use sextant_types::{ApplicationId, Code, Constants, Digest, ModelId, Padding, Renames, signature};

use super::{NewModelBody, archive};
use crate::{
    ApiState,
    auth::Caller,
    body,
    codec::short,
    json,
    problem::{Problem, refusal},
    room::Reservation,
    upload,
};

mod memory;
mod values;

use values::{
    checked, classes, data_file, distinct, invalid_constant, is_current, named, named_once,
    padding, positive, unlabelled, usable, version,
};

pub use memory::Memory;

/// Longest text field of a form, bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Most bytes of the value of a constant.
const MAX_CONSTANT_BYTES: usize = 1 << 20;

/// Most bytes of the classes' names.
const MAX_CLASSES_BYTES: usize = 4 << 20;

/// Memory of a class's name in addition to its text, bytes.
const CLASS_BYTES: usize = 48;

/// The parts of a form as they arrive.
#[derive(Default)]
struct Form {
    name: Option<ModelId>,
    version: Option<u32>,
    stage: Option<String>,
    application: Option<ApplicationId>,
    model: Option<PutBlob>,
    validation: Option<PutBlob>,
    mask: Option<String>,
    pad: BTreeMap<String, f64>,
    outputs: Vec<String>,
    constants: Constants,
    classes: Option<Vec<String>>,
    names: Renames,
    labels: Option<String>,
    data: Vec<DataFile>,
    beside: ArchiveDefaults,
    /// The digests of all files that were stored.
    stored: Vec<Digest>,
    /// Those of them that were archives and have been unpacked.
    archives: Vec<Digest>,
}

/// Values from an archive, used if the form does not have them.
#[derive(Default)]
struct ArchiveDefaults {
    validation: Option<PutBlob>,
    classes: Vec<String>,
}

/// Reads a model from a form. The form's memory is held as long as the model.
pub async fn from_form(
    state: &ApiState,
    caller: &Caller,
    (mut parts, memory): (Multipart, &mut Memory),
) -> Result<NewModel, Problem> {
    let mut form = Form::default();
    let read = form.read(state, caller, (&mut parts, &mut *memory)).await;
    let mut stored = std::mem::take(&mut form.stored);
    let archives = std::mem::take(&mut form.archives);
    let model = match read {
        Ok(()) => form.complete(caller),
        Err(problem) => {
            // The form is no longer needed, and the client may be slow.
            drop(form);
            memory.give_back();
            discard(&mut parts, memory).await;
            Err(problem)
        }
    };
    if model.is_ok() {
        stored = archives;
    }
    state.storage().give_back(&stored).await;
    model
}

/// Reads and discards the rest of a form, so that the client sees the refusal.
async fn discard(parts: &mut Multipart, memory: &Memory) {
    memory.progress().unwanted();
    let read = async { while let Ok(Some(_)) = parts.next_field().await {} };
    // After the time limit the connection closes, as it would have done at once.
    let _ = tokio::time::timeout(body::DISCARD_TIME, read).await;
}

/// Reads a model from files in the artefact store, which a JSON body names.
pub async fn from_store(
    state: &ApiState,
    caller: &Caller,
    request: Request,
) -> Result<NewModel, Problem> {
    if let Some(own) = caller.application() {
        let detail = format!(
            "the key is bound to application `{own}`, and files of the artefact store belong to \
             none: send the model as a form"
        );
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let bytes = state.collect(request.into_body()).await?;
    let body: NewModelBody = json::owned(&bytes)?;
    let mut data = Vec::new();
    for path in body.data_paths.iter().flatten() {
        let blob = copy(state, path, "data").await?;
        data.push(data_file(path, blob));
    }
    if let Some(path) = &body.metric_path {
        let blob = copy(state, path, "metric_model").await?;
        data.push(data_file(METRIC_FILE, blob));
    }
    let mut form = Form {
        name: Some(ModelId::new(&body.name)?),
        version: body.version.map(positive).transpose()?,
        stage: body.stage,
        application: Some(existing_application(state, &body.application).await?),
        model: None,
        validation: Some(copy(state, &body.validation_path, "validation").await?),
        mask: body.mask,
        pad: body.pad.unwrap_or_default(),
        outputs: body.outputs.unwrap_or_default(),
        constants: body.constants.unwrap_or_default(),
        classes: body.classes,
        names: Renames {
            inputs: body.input_names.unwrap_or_default(),
            outputs: body.output_names.unwrap_or_default(),
        },
        labels: body.labels,
        data,
        beside: ArchiveDefaults::default(),
        stored: Vec::new(),
        archives: Vec::new(),
    };
    let model = copy(state, &body.model_path, "model").await?;
    form.take_model(state, model).await?;
    form.complete(caller)
}

// === impl Form ===

impl Form {
    async fn read(
        &mut self,
        state: &ApiState,
        caller: &Caller,
        (parts, memory): (&mut Multipart, &mut Memory),
    ) -> Result<(), Problem> {
        while let Some(field) = parts.next_field().await.map_err(|error| broken(&error))? {
            memory.begin_part()?;
            self.take(state, caller, (field, &mut *memory)).await?;
        }
        Ok(())
    }

    async fn take(
        &mut self,
        state: &ApiState,
        caller: &Caller,
        (field, memory): (Field<'_>, &mut Memory),
    ) -> Result<(), Problem> {
        match field.name().unwrap_or_default() {
            "name" => once(
                "name",
                &mut self.name,
                ModelId::new(text(field, memory).await?)?,
            ),
            "version" => {
                let number = text(field, memory).await?;
                once("version", &mut self.version, version(&number)?)
            }
            "stage" => once("stage", &mut self.stage, text(field, memory).await?),
            "application" => {
                let name = text(field, memory).await?;
                caller.check(&ApplicationId::new(&name)?)?;
                let application = existing_application(state, &name).await?;
                once("application", &mut self.application, application)
            }
            "model" => {
                let blob = store(state, (field, &mut *memory), "model").await?;
                self.stored.push(blob.digest);
                self.take_model(state, blob).await?;
                memory.hold(self.data.iter().map(|file| file.name.len()).sum())
            }
            "validation" => {
                let blob = store(state, (field, memory), "validation").await?;
                self.stored.push(blob.digest);
                once("validation", &mut self.validation, blob)
            }
            "mask" => once("mask", &mut self.mask, text(field, memory).await?),
            "pad" => {
                let (input, value) = padding(&text(field, memory).await?)?;
                self.pad.insert(input, value);
                Ok(())
            }
            "data" => {
                let Some(name) = field.file_name().map(str::to_owned) else {
                    let detail =
                        "the part `data` has no file name, by which the model refers to it";
                    return Err(Problem::new(Code::InvalidRequest, detail).field("data"));
                };
                memory.hold(name.len())?;
                let blob = store(state, (field, memory), "data").await?;
                self.stored.push(blob.digest);
                self.data.push(data_file(&name, blob));
                Ok(())
            }
            "metric_model" => {
                let blob = store(state, (field, memory), "metric_model").await?;
                self.stored.push(blob.digest);
                self.data.push(data_file(METRIC_FILE, blob));
                Ok(())
            }
            "classes" => {
                let most = (MAX_CLASSES_BYTES, "`classes`");
                let names = text_within(field, most, memory).await?;
                memory.hold(names.lines().count().saturating_mul(CLASS_BYTES))?;
                let names = names.lines().map(|name| name.trim().to_owned());
                once("classes", &mut self.classes, names.collect())
            }
            "input_name" => named(
                "input_name",
                &mut self.names.inputs,
                &text(field, memory).await?,
            ),
            "output_name" => named(
                "output_name",
                &mut self.names.outputs,
                &text(field, memory).await?,
            ),
            "labels" => once("labels", &mut self.labels, text(field, memory).await?),
            "output" => {
                self.outputs.push(text(field, memory).await?);
                Ok(())
            }
            "constant" => {
                let most = (MAX_CONSTANT_BYTES, "`constant`");
                let text = text_within(field, most, memory).await?;
                let numbers = text.bytes().filter(|byte| *byte == b',').count() + 1;
                memory.hold(numbers.saturating_mul(size_of::<f64>()))?;
                let (input, values) = signature::constant(&text).map_err(invalid_constant)?;
                match self.constants.insert(input, values) {
                    None => Ok(()),
                    Some(_) => Err(invalid_constant("an input has one value only")),
                }
            }
            other => {
                let other = short(other);
                let detail = format!(
                    "the form has a field `{other}`: its fields are `name`, `version`, `stage`, `application`, \
                     `model`, `validation`, `data`, `metric_model`, `output`, `constant`, `classes`, \
                     `input_name`, `output_name`, `labels`, `mask`, `pad`"
                );
                Err(Problem::new(Code::InvalidRequest, detail))
            }
        }
    }

    /// Takes an ONNX file, or an archive with an ONNX file and the files beside it.
    async fn take_model(&mut self, state: &ApiState, blob: PutBlob) -> Result<(), Problem> {
        let unpacked = archive::unpacked(state, blob, &mut self.stored).await?;
        let Some(unpacked) = unpacked else {
            return once("model", &mut self.model, blob);
        };
        self.archives.extend(unpacked.packed);
        self.data.extend(unpacked.data);
        self.beside = ArchiveDefaults {
            validation: unpacked.validation,
            classes: unpacked.classes,
        };
        once("model", &mut self.model, unpacked.model)
    }

    fn complete(self, caller: &Caller) -> Result<NewModel, Problem> {
        let padding = match (self.mask, self.pad) {
            (Some(mask), values) => Some(Padding {
                mask,
                values,
                cropped: Vec::new(),
            }),
            (None, values) if values.is_empty() => None,
            (None, _) => {
                let detail = "`pad` needs `mask`: the input that tells padding from the rest";
                return Err(Problem::new(Code::InvalidPadding, detail).field("mask"));
            }
        };
        let model = required("model", self.model)?;
        let validation = self.validation.or(self.beside.validation);
        let validation = required("validation", validation)?;
        let named = Some(self.beside.classes).filter(|named| !named.is_empty());
        Ok(NewModel {
            name: required("name", self.name)?,
            version: self.version,
            current: is_current(self.stage.as_deref())?,
            application: required("application", self.application)?,
            digest: not_empty(model, "model", Code::InvalidModel)?.digest,
            validation: not_empty(validation, "validation", Code::InvalidValidationSet)?.digest,
            size_bytes: model.size_bytes,
            padding,
            outputs: distinct(self.outputs, "output")?,
            constants: checked(self.constants)?,
            classes: classes(self.classes.or(named))?,
            names: usable(self.names)?,
            unlabelled: unlabelled(self.labels.as_deref())?,
            data: named_once(self.data)?,
            registered_by: Some(registrant(caller)),
        })
    }
}

fn registrant(caller: &Caller) -> Registrant {
    Registrant {
        name: caller.name().to_owned(),
        is_administrator: caller.has(KeyScope::Admin),
    }
}

async fn existing_application(state: &ApiState, name: &str) -> Result<ApplicationId, Problem> {
    let id = ApplicationId::new(name)?;
    state.registry().application(&id).await?;
    Ok(id)
}

async fn store(
    state: &ApiState,
    (field, memory): (Field<'_>, &mut Memory),
    what: &'static str,
) -> Result<PutBlob, Problem> {
    let _held: Reservation = memory.of_file()?;
    let progress = memory.progress().clone();
    let pieces = field.inspect(move |_| progress.made());
    let bytes = upload::limited(pieces, what, state.limits().max_model_bytes);
    Ok(state.objects().put_blob_stream(bytes).await?)
}

async fn copy(state: &ApiState, path: &str, what: &'static str) -> Result<PutBlob, Problem> {
    let path = ObjectPath::parse(path)?;
    let objects = state.objects();
    let file = upload::existing(objects.as_ref(), &path).await?;
    let whole = (0, file.size_bytes);
    let bytes = upload::stored(objects.clone(), file, whole);
    let bytes = upload::limited(bytes, what, state.limits().max_model_bytes);
    Ok(objects.put_blob_stream(bytes).await?)
}

async fn text(field: Field<'_>, memory: &mut Memory) -> Result<String, Problem> {
    text_within(field, (MAX_TEXT_BYTES, "a text field"), memory).await
}

async fn text_within(
    mut field: Field<'_>,
    (most, what): (usize, &str),
    memory: &mut Memory,
) -> Result<String, Problem> {
    let mut text = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|error| broken(&error))? {
        memory.progress().made();
        if text.len() + piece.len() > most {
            return Err(too_long(what, most));
        }
        memory.hold(piece.len())?;
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text)
        .map_err(|_| Problem::new(Code::InvalidRequest, "a text field is not UTF-8"))
}

/// The refusal of a field whose length no setting limits.
fn too_long(what: &str, most: usize) -> Problem {
    let detail = format!("{what} is longer than the `{most}` bytes that it may have");
    Problem::new(Code::TooLarge, detail)
}

fn once<T>(name: &str, slot: &mut Option<T>, value: T) -> Result<(), Problem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => {
            let detail = format!("the form has more than one field `{name}`");
            Err(Problem::new(Code::InvalidRequest, detail).field(name))
        }
    }
}

fn required<T>(name: &str, slot: Option<T>) -> Result<T, Problem> {
    slot.ok_or_else(|| {
        let detail = format!("the form has no field `{name}`");
        Problem::new(Code::InvalidRequest, detail).field(name)
    })
}

fn not_empty(blob: PutBlob, name: &str, code: Code) -> Result<PutBlob, Problem> {
    if blob.size_bytes > 0 {
        return Ok(blob);
    }
    Err(Problem::new(code, format!("the file of `{name}` is empty")).field(name))
}

fn broken(error: &MultipartError) -> Problem {
    let refused = refusal(error);
    refused.unwrap_or_else(|| unreadable(error))
}

fn unreadable(error: &MultipartError) -> Problem {
    Problem::new(Code::InvalidRequest, error.body_text())
}
